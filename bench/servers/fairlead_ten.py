"""Ten tools with Fairlead, for the figures of start-up and memory."""

from ten import TEN

from fairlead import MCPServer

server = MCPServer("ten", rate_limit_rate=0)
for tool in TEN:
    server.tool(output_schema=False)(tool)

if __name__ == "__main__":
    server.run()
