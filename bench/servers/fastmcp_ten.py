"""Ten tools with FastMCP, for the figures of start-up and memory."""

from fastmcp import FastMCP
from ten import TEN

server = FastMCP("ten")
for tool in TEN:
    server.tool()(tool)

if __name__ == "__main__":
    server.run(show_banner=False)
