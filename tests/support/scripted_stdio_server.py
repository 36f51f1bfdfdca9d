"""Server programs without a library that send exactly the messages a test needs."""

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

PRELUDE = """
import json, os, sys, time

LOG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "log")

def send(message):
    sys.stdout.write(json.dumps(message) + "\\n")
    sys.stdout.flush()

def answer(request, result):
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})

def complete(request, **result):
    answer(request, {"resultType": "complete", **result})

def refuse(request, code=-32601, message="Method not found"):
    send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})

def tell(method, params):
    send({"jsonrpc": "2.0", "method": method, "params": params})

def text(words):
    return [{"type": "text", "text": words}]

def requests():
    for line in sys.stdin:
        with open(LOG, "a") as log:
            log.write(line)
        request = json.loads(line)
        if "method" not in request:
            yield request  # a response to a request of this server
        elif request["method"] == "server/discover" and STATELESS:
            complete(request, supportedVersions=["2026-07-28"], capabilities=CAPABILITIES,
                     ttlMs=0, cacheScope="private")
        elif request["method"] == "initialize":
            answer(request, {"protocolVersion": request["params"]["protocolVersion"],
                             "capabilities": CAPABILITIES,
                             "serverInfo": {"name": "hand-made", "version": "1"}})
        elif request["method"] == "server/discover":
            refuse(request)
        elif request["method"] == "ping":
            answer(request, {})
        else:
            yield request

CAPABILITIES = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "logging": {}}
"""


def program(folder: Path, source: str, *, stateless: bool) -> list[str]:
    """Return the command that runs a server whose loop is `source`."""
    file = folder / "server.py"
    file.write_text(PRELUDE + f"STATELESS = {stateless}\n" + textwrap.dedent(source))
    return [sys.executable, str(file)]


def heard(folder: Path, method: str | None = None) -> list[dict[str, Any]]:
    """Return the messages that the server received, in order, optionally of one method."""
    lines = (folder / "log").read_text().split("\n")
    messages = [json.loads(line) for line in lines if line]
    return [m for m in messages if method in (None, m.get("method"))]
