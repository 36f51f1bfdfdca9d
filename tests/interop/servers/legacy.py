"""Servers of the handshake era without a library, each with one behaviour.

`refuses` answers unknown methods with -32601, `silent` does not answer them, `crashes` exits if the
first message is not `initialize`, `sleepy` waits 1.5 s before it reads, `old` always selects
2024-11-05, `alien` selects a version that does not exist, and `dies` exits at once.
"""

import json
import os
import sys
import time

habit = sys.argv[1]
heard: list[str] = []


def answer(request: dict, **outcome: object) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def serve(message: dict) -> None:
    method = message["method"]
    heard.append(method)
    if "id" not in message:
        return
    if method == "initialize":
        proposed = message["params"]["protocolVersion"]
        version = {"old": "2024-11-05", "alien": "1999-12-31"}.get(habit, proposed)
        info = {"name": habit, "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        answer(message, result=result)
    elif method == "tools/list":
        answer(message, result={"tools": [{"name": "heard", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        answer(message, result={"content": [{"type": "text", "text": json.dumps(heard)}]})
    elif habit != "silent":
        answer(message, error={"code": -32601, "message": f"Method not found: {method}"})


sys.stderr.write(f"pid {os.getpid()}\n")
sys.stderr.flush()
if habit == "dies":
    sys.exit("a setting is missing")
if habit == "sleepy":
    time.sleep(1.5)
for line in sys.stdin:
    parsed = json.loads(line)
    if habit == "crashes" and not heard and parsed["method"] != "initialize":
        sys.exit("the first message must be initialize")
    serve(parsed)
