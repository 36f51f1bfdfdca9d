"""A thousand tools with FastMCP, for the figures of listing."""

from fastmcp import FastMCP
from pydantic import Field
from thousand import thousand

server = FastMCP("thousand")
for tool in thousand(note=lambda text: Field(description=text)):
    server.tool()(tool)

if __name__ == "__main__":
    server.run(show_banner=False)
