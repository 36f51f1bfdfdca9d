"""`echo` and `add` with FastMCP."""

from fastmcp import FastMCP

server = FastMCP("bench")


@server.tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run(show_banner=False)
