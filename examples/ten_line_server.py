from fairlead import MCPServer

server = MCPServer("ten-lines")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run()
