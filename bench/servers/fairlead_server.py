"""`echo` and `add` with Fairlead."""

from fairlead import MCPServer

server = MCPServer("bench", rate_limit_rate=0)


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
