"""The documented table of failures, tested with a client."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.errors import (
    ChannelClosed,
    FairleadError,
    RemoteProtocolError,
    RequestTimeout,
    TransportError,
)
from tests.support.scripted_http_server import Call, handshake_server, raw_server

LIMIT = 20.0
HANDSHAKE = MCPClientConfig(protocol_version="2025-11-25")
PROGRAM = """
import json, os, sys
def send(message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "initialize":
        send({"id": request["id"], "result": {"protocolVersion": "2025-11-25",
              "capabilities": {"tools": {}}, "serverInfo": {"name": "hand-made", "version": "1"}}})
    elif request["method"] == "tools/call":
        match request["params"]["name"]:
            case "chatter":
                print("not a message")
                print('{"jsonrpc": "2.0", "id": ')
                send({"id": request["id"], "result": {"content": [{"type": "text", "text": "ok"}]}})
            case "die":
                os._exit(3)
"""


def command(folder: Path) -> list[str]:
    file = folder / "server.py"
    file.write_text(PROGRAM)
    return [sys.executable, os.fspath(file)]


@pytest.mark.covers("QUA-03")
async def test_an_invalid_line_is_dropped_and_the_stream_continues(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT), MCPClient.connect_stdio(command(tmp_path), HANDSHAKE) as it:
        for _ in range(2):
            assert (await it.call("chatter")).text == "ok"


@pytest.mark.covers("QUA-03")
async def test_the_exit_of_a_process_fails_its_pending_requests(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT), MCPClient.connect_stdio(command(tmp_path), HANDSHAKE) as it:
        pending = [asyncio.create_task(it.call("silent")) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ChannelClosed, match="exited with code 3"):
            await it.call("die")
        ended = await asyncio.gather(*pending, return_exceptions=True)
        assert all(isinstance(one, ChannelClosed) for one in ended)


async def failing(rest: Any, error: type[Exception], words: str) -> None:
    async with (
        asyncio.timeout(LIMIT),
        raw_server(handshake_server(rest)) as server,
        MCPClient.connect_http(server.url, HANDSHAKE) as client,
    ):
        with pytest.raises(error, match=words):
            await client.call("x")


@pytest.mark.covers("QUA-03")
@pytest.mark.parametrize("status", [400, 403, 500, 502])
async def test_an_http_error_status_is_raised_as_a_transport_error(status: int) -> None:
    async def rest(call: Call) -> None:
        await call.answer(status, "another program answers here")

    await failing(rest, TransportError, str(status))


@pytest.mark.covers("QUA-03")
async def test_a_response_with_invalid_json_fails_the_request() -> None:
    async def rest(call: Call) -> None:
        await call.answer(200, b'{"jsonrpc":', Content_Type="application/json")

    await failing(rest, RemoteProtocolError, "not valid JSON")


@pytest.mark.covers("QUA-03")
async def test_an_event_stream_without_a_response_fails_the_request() -> None:
    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.raw(b"0\r\n\r\n")

    await failing(rest, FairleadError, "No response received")


@pytest.mark.covers("QUA-03")
async def test_a_timeout_is_distinguished_from_a_cancellation_by_the_caller(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT), MCPClient.connect_stdio(command(tmp_path), HANDSHAKE) as it:
        with pytest.raises(RequestTimeout):
            await it.call_tool("silent", timeout=0.05)
        aborted = asyncio.create_task(it.call_tool("silent"))
        await asyncio.sleep(0)
        aborted.cancel()
        with pytest.raises(asyncio.CancelledError):
            await aborted
        assert (await it.call("chatter")).text == "ok"  # the connection is still usable
