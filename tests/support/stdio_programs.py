"""Small server programs for tests, well-behaved and faulty."""

import sys
import textwrap
from pathlib import Path

# A minimal server without a library, on which faulty servers are based.
PRELUDE = """
import json, os, signal, subprocess, sys, threading, time

def send(message):
    sys.stdout.write(json.dumps(message) + "\\n")
    sys.stdout.flush()

def answer(request, result):
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})

def refuse(request, code=-32601, message="Method not found"):
    send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})

def greet(request):
    answer(request, {
        "protocolVersion": request["params"]["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "hand-made", "version": "1"},
    })

def serve(handle):
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("method") == "initialize":
            greet(request)
        elif request.get("method") == "tools/list":
            answer(request, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
        elif "id" in request and request.get("method") != "tools/call":
            refuse(request)
        elif request.get("method") == "tools/call":
            handle(request)
"""


def program(folder: Path, source: str, name: str = "server.py") -> list[str]:
    """Write a program that starts with the prelude, and return the command that runs it."""
    file = folder / name
    file.write_text(PRELUDE + textwrap.dedent(source))
    return [sys.executable, str(file)]
