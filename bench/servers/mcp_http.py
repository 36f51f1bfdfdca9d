"""The servers of `mcp_*.py` over HTTP: PORT, which of them, and how it answers."""

import sys
from importlib import import_module

from ten import echo

port, which, answers = sys.argv[1:]
server = import_module(f"mcp_{which}").server
if which == "thousand":
    server.tool()(echo)

if __name__ == "__main__":
    # In a session it answers with events by itself.
    server.run("streamable-http", port=int(port), json_response=answers == "json")
