"""The floor: spawn all servers together, greet each, read their first answers; nothing else.

bare_manager.py start CONFIG HEALTHY: until so many of them have answered
"""

import json
import selectors
import subprocess
import sys

from telling import Clock, configured, tell

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bare", "version": "1.0.0"},
    },
}


def start(config: str, healthy: int) -> None:
    clock = Clock()
    hello = json.dumps(HELLO).encode() + b"\n"
    waiting, processes, answers = selectors.DefaultSelector(), [], 0
    for entry in configured(config).values():
        process = subprocess.Popen(
            [entry["command"], *entry["args"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        processes.append(process)
        try:
            process.stdin.write(hello)
        except BrokenPipeError:
            continue  # the one that crashes
        waiting.register(process.stdout, selectors.EVENT_READ)
    while answers < healthy:
        for key, _ in waiting.select():
            answers += bool(key.fileobj.readline())
            waiting.unregister(key.fileobj)
    tell(**clock.read())
    for process in processes:
        process.kill()
        process.wait()


if __name__ == "__main__":
    start(sys.argv[2], int(sys.argv[3]))
