"""HTTP server that accepts access tokens of an authorization server.

    ISSUER=https://login.example.com python examples/protected_server.py 8090
    fairlead login http://127.0.0.1:8090/mcp
    fairlead call whoami http://127.0.0.1:8090/mcp

Every request needs a token of the issuer for this server with the scope mcp:basic. The tool `note`
also needs mcp:write; a client without it gets a 403, whose challenge names both.
"""

import os
import sys

from fairlead import Context, MCPServer
from fairlead.server import ServerAuth

NO_ISSUER = "ISSUER is not set: give the URL of your authorization server, see docs/protecting.md"
server = MCPServer(
    "notes",
    transport="http",
    port=int(sys.argv[1]) if len(sys.argv) > 1 else 8080,
    auth=ServerAuth(
        issuer=os.environ.get("ISSUER") or sys.exit(NO_ISSUER),
        # the URL that clients use, without /mcp; not needed on 127.0.0.1
        public_url=os.environ.get("PUBLIC_URL"),
        scopes=["mcp:basic"],
    ),
)
notes: dict[tuple[str | None, str | None], list[str]] = {}


@server.tool()
def whoami(ctx: Context) -> str:
    """Return the user of the access token."""
    return f"{ctx.subject} of {ctx.issuer}"


@server.tool(scopes=["mcp:write"])
def note(text: str, ctx: Context) -> int:
    """Add a note of this user and return the number of notes."""
    # A subject is unique only together with its issuer.
    mine = notes.setdefault((ctx.issuer, ctx.subject), [])
    mine.append(text)
    return len(mine)


if __name__ == "__main__":
    server.run()
