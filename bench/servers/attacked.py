"""A server with one of everything that a client can send hostile input to."""

from fairlead import MCPServer

server = MCPServer("attacked")


@server.tool()
async def order(items: list[dict[str, int]], note: str = "", urgent: bool = False) -> str:
    """Place an order."""
    return f"{len(items)} items"


@server.resource("attacked:///files/{+path}{?a,b}{&c}")
async def file(path: str, a: str = "", b: str = "", c: str = "") -> str:
    """Read a file."""
    return "content"


@server.resource("attacked:///dated/{year}/{month}/{name}")
async def dated(year: str, month: str, name: str) -> str:
    """Read a dated file."""
    return "content"


@server.prompt()
async def greet(name: str) -> str:
    """Greet a person."""
    return f"Hello {name}"


if __name__ == "__main__":
    server.run()
