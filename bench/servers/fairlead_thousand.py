"""A thousand tools with Fairlead, for the figures of listing; the argument is the page size."""

import sys

from thousand import thousand

from fairlead import MCPServer

pages = {"page_size": int(sys.argv[1])} if len(sys.argv) > 1 else {}
server = MCPServer("thousand", rate_limit_rate=0, **pages)
for tool in thousand(note=str):
    server.tool()(tool)

if __name__ == "__main__":
    server.run()
