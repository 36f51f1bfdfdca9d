"""The life of a server process: defaults and signals."""

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.server.http_app import uvicorn_runner as run_http

STUCK = """
import asyncio
import sys
import threading
from fairlead import MCPServer
from fairlead.server import run_program as run
run.STOP_LIMIT = 0.7
server = MCPServer("stuck")

@server.tool()
async def wait() -> None:
    print("waiting", file=sys.stderr, flush=True)
    await asyncio.to_thread(threading.Event().wait)

server.run()
"""


def test_a_process_with_a_stuck_thread_ends_in_time_and_says_so() -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "wait", "arguments": {}, "_meta": meta}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with subprocess.Popen(
        [sys.executable, "-c", STUCK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(call) + "\n")
        process.stdin.flush()
        assert process.stderr.readline() == "waiting\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert said == "fairlead: something did not end in time; leaving without it\n"


@pytest.mark.covers("SRV-09")
async def test_http_is_served_on_port_8080_of_this_machine_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places: list[Any] = []

    async def run_app(app: Any, host: str, port: int, **options: Any) -> None:
        places.append((host, port))

    monkeypatch.setattr(run_http, "run_app", run_app)
    await MCPServer("s").run_http()
    await MCPServer("s").run_http(port=0)
    assert places == [("127.0.0.1", 8080), ("127.0.0.1", 0)]
