"""`echo` and `add` with the official Python SDK."""

from mcp.server import MCPServer

server = MCPServer("bench")


@server.tool()
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run()
