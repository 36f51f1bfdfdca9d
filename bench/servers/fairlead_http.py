"""The servers of `fairlead_*.py` over HTTP: PORT, which of them, and how it answers."""

import sys
from importlib import import_module

import uvloop
from ten import echo

port, which, answers = sys.argv[1:]
server = import_module(f"fairlead_{which}").server
if which == "thousand":
    server.tool()(echo)

if __name__ == "__main__":
    # By itself it answers with JSON.
    options = {"answers": "sse"} if answers == "sse" else {}
    uvloop.run(server.run_http(port=int(port), **options))
