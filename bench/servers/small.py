"""Minimal server with three tools and only the standard library.

Twenty of these start about as fast as twenty interpreters, so the time of a manager is visible.
"""

import json
import sys

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "small", "version": "1.0.0"},
    },
    "tools/list": {
        "tools": [
            {"name": name, "description": f"Says {name}.", "inputSchema": SCHEMA}
            for name in ("one", "two", "three")
        ]
    },
    "ping": {},
}

if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in ANSWERS:
            answer["result"] = ANSWERS[message["method"]]
        else:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        print(json.dumps(answer), flush=True)
