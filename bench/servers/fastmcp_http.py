"""The servers of `fastmcp_*.py` over HTTP: PORT, which of them, and how it answers."""

import sys
from importlib import import_module

from ten import echo

port, which, answers = sys.argv[1:]
server = import_module(f"fastmcp_{which}").server
if which == "thousand":
    server.tool()(echo)

if __name__ == "__main__":
    # In a session it answers with events by itself.
    json = answers == "json"
    server.run(transport="http", port=int(port), json_response=json, show_banner=False)
