"""Ten tools with the official Python SDK, for the figures of start-up and memory."""

from mcp.server import MCPServer
from ten import TEN

server = MCPServer("ten")
for tool in TEN:
    server.tool()(tool)

if __name__ == "__main__":
    server.run()
