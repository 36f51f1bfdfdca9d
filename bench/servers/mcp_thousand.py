"""A thousand tools with the official Python SDK, for the figures of listing."""

from mcp.server import MCPServer
from pydantic import Field
from thousand import thousand

server = MCPServer("thousand")
for tool in thousand(note=lambda text: Field(description=text)):
    server.tool()(tool)

if __name__ == "__main__":
    server.run()
