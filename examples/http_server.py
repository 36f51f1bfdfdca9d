"""HTTP server that only accepts clients with a token.

    NOTES_TOKEN=open-sesame python examples/http_server.py 8080
    fairlead call note text=hello http://127.0.0.1:8080 --token open-sesame

WebSocket is served at /ws of the same port. Without a token, the server would refuse to listen for
other machines.
"""

import os
import sys

from fairlead import MCPServer

server = MCPServer(
    "notes",
    transport="http",
    host="127.0.0.1",  # 0.0.0.0 to listen for other machines
    port=int(sys.argv[1]) if len(sys.argv) > 1 else 8080,
    auth_token=os.environ.get("NOTES_TOKEN") or sys.exit("NOTES_TOKEN is not set"),
)
notes: list[str] = []


@server.tool()
def note(text: str) -> int:
    """Add a note and return the number of notes."""
    notes.append(text)
    server.resource_updated("notes://all")
    return len(notes)


@server.resource("notes://all")
def all_notes() -> str:
    return "\n".join(notes)


if __name__ == "__main__":
    server.run()
