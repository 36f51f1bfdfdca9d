"""Protected server that accepts tokens of an issuer: protected.py ISSUER PORT."""

import asyncio
import sys

from fairlead import MCPServer
from fairlead.auth.server.server_auth import ServerAuth

AUDIENCE = "bench"

issuer, port = sys.argv[1:]
server = MCPServer(
    "protected", auth=ServerAuth(issuer=issuer, audience=AUDIENCE), rate_limit_rate=0
)


@server.tool(inline=True)
def echo(text: str) -> str:
    return text


asyncio.run(server.run_http(port=int(port)))
