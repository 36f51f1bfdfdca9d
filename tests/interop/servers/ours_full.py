"""`ours.py` with requests to the client, templates, completion and changes."""

from typing import Literal

from msgspec import Struct
from ours import server, under_way

from fairlead import Context

PAGE = "https://example.com/sign-in?a=1&b=2"


class Visitor(Struct):
    name: str
    age: int = 30
    mood: Literal["merry", "sad"] = "merry"


class Weight(Struct):
    grams: int
    heavy: bool


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask the user who they are."""
    answer = await ctx.elicit("Please enter your name.", Visitor)
    if answer.data is None:
        return answer.action
    return f"accept {answer.data.name} {answer.data.age}"


@server.tool()
async def open_page(ctx: Context) -> str:
    """Ask the user to open a page."""
    return await ctx.elicit_url("Please sign in.", PAGE)


@server.tool()
async def think(ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample("Add 2 and 2.", max_tokens=10, systemPrompt="Be brief.")
    return str(answer["content"]["text"])


@server.tool()
async def think_patiently(ctx: Context) -> str:
    """Ask as `think` does, tracked by `was_stopped`."""
    with under_way(ctx):
        return await think(ctx)


@server.tool()
async def think_with_tools(ctx: Context) -> str:
    """Ask the client's model which tool it would use."""
    add = {"name": "add", "inputSchema": {"type": "object"}}
    answer = await ctx.sample("Add 2 and 2.", tools=[add], toolChoice={"mode": "required"})
    return str(answer["content"][0]["name"])


@server.tool()
async def look_around(ctx: Context) -> str:
    """Return the client's roots."""
    return " ".join(root["uri"] for root in await ctx.roots())


@server.tool()
async def interview(ctx: Context) -> str:
    """Send several requests in sequence."""
    return " | ".join([await ask(ctx), await think(ctx), await look_around(ctx)])


@server.tool(output_schema=True)
def many(to: int) -> list[int]:
    """Return structured content that is not an object."""
    return list(range(to))


@server.tool()
def weigh(grams: int) -> Weight:
    """Return a value with an output schema."""
    return Weight(grams, grams > 1000)


@server.tool()
def touch(uri: str) -> str:
    """Notify subscribers that a resource has changed."""
    server.resource_updated(uri)
    return "touched"


@server.tool()
def grow() -> str:
    """Add one item to every list."""
    server.register_tool("grown", {"type": "object"}, lambda: "grown")
    server.register_resource("memo://grown", "grown", content_provider="grown")
    server.register_prompt("grown", template="grown")
    return "grown"


@server.tool()
def shrink() -> str:
    """Remove the items that `grow` added."""
    server.remove_tool("grown")
    server.remove_resource("memo://grown")
    server.remove_prompt("grown")
    return "shrunk"


@server.resource("memo://notes/{number}", name="note", mime_type="text/plain")
def note(number: int) -> str:
    return f"note {number}"


@server.resource("memo://diary/{day}", name="diary", mime_type="text/plain")
async def diary(day: str, ctx: Context) -> str:
    return f"{day}: {await ask(ctx)}"


@server.prompt()
async def dedicate(ctx: Context) -> str:
    return f"Dedicate it: {await ask(ctx)}"


@server.prompt()
def recommend(reader: str, mood: Literal["merry", "sad"] = "merry") -> str:
    return f"Recommend a {mood} book for {reader}."


@server.completion("recommend", "reader")
def readers(typed: str, others: dict[str, str]) -> list[str]:
    names = ["Ada", "Alan"] if others.get("mood") != "sad" else ["Alas"]
    return [name for name in names if name.startswith(typed)]


@server.completion("memo://notes/{number}", "number")
def numbers(typed: str) -> list[str]:
    return [number for number in ("1", "12", "2") if number.startswith(typed)]


if __name__ == "__main__":
    server.run()
