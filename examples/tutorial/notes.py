"""A notes server: tools that write, list and erase notes, and a resource that reads a note."""

from typing import Annotated

from fairlead import Context, MCPServer, MCPToolError

server = MCPServer("notes")
notes = {"today": "Buy bread."}


@server.tool()
def write(title: Annotated[str, "A short title"], text: str) -> str:
    """Write a note."""
    notes[title] = text
    return f"wrote {title!r} ({len(text)} characters)"


@server.tool(annotations={"readOnlyHint": True})
def titles() -> list[str]:
    """List the titles of all notes."""
    return sorted(notes)


@server.tool()
async def erase(title: str, ctx: Context) -> str:
    """Erase a note, if the user agrees."""
    if title not in notes:
        raise MCPToolError(f"unknown note {title!r}", code="NOT_FOUND")
    answer = await ctx.elicit(f"Erase {title!r}?", bool)
    if not answer.data:
        return f"kept {title!r}"
    del notes[title]
    return f"erased {title!r}"


@server.resource("note://{title}")
def read(title: str) -> str:
    """The text of a note."""
    return notes[title]


if __name__ == "__main__":
    server.run()
