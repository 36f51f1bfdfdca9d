"""Tests of transports and of the functions that create them."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead.client import (
    AbortSignal,
    HttpTransport,
    MCPStdioServerConfig,
    MCPTransport,
    RequestOptions,
    StdioTransport,
    create_stdio_transport,
    create_transport,
    register_transport,
)
from fairlead.client.client_config import request_timeout
from fairlead.errors import ChannelClosed, ConfigError, ConnectFailed, RequestTimeout, RpcError

SERVER = """
import json, os, sys, time

def send(message):
    print(json.dumps(message), flush=True)

for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method == "echo":
        send({"jsonrpc": "2.0", "id": request["id"], "result": request["params"]})
    elif method == "id":
        send({"jsonrpc": "2.0", "id": request["id"], "result": request["id"]})
    elif method == "refuse":
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -5, "message": "no"}})
    elif method == "progress":
        token = request["params"]["_meta"]["progressToken"]
        send({"jsonrpc": "2.0", "method": "notifications/progress",
              "params": {"progressToken": token, "progress": 1, "total": 2}})
        send({"jsonrpc": "2.0", "id": request["id"], "result": {}})
    elif method == "initialize":
        send({"jsonrpc": "2.0", "id": request["id"], "result": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s"}}})
    elif method == "ask":
        send({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
        send({"jsonrpc": "2.0", "id": request["id"], "result": json.loads(sys.stdin.readline())})
    elif method == "leave":
        sys.exit(4)
"""


@pytest.fixture
def entry(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    return {"command": sys.executable, "args": [str(file)]}


@pytest.mark.covers("TRN-01", "TRN-04", "TRN-05", "TRN-08", "TRN-19")
async def test_a_transport_can_be_connected_used_and_closed(
    entry: dict[str, Any], loop_kind: str
) -> None:
    transport = StdioTransport(entry)
    ends: list[ChannelClosed] = []
    transport.on_close = ends.append
    assert not transport.connected
    with pytest.raises(ChannelClosed, match="Transport not connected"):
        await transport.request("echo", {})
    async with transport:
        await transport.connect()  # a second call has no effect
        assert transport.connected
        assert await transport.request("echo", {"a": 1}) == {"a": 1}
        await transport.notify("something", {"b": 2})
        with pytest.raises(RpcError, match="MCP error -5: no"):
            await transport.request("refuse")
    assert not transport.connected
    await transport.close()
    assert len(ends) == 1
    with pytest.raises(ChannelClosed, match="Transport not connected"):
        await transport.notify("x")
    with pytest.raises(ChannelClosed):
        await transport.connect()  # a closed transport cannot be reopened
    assert isinstance(transport, MCPTransport)


@pytest.mark.covers("DEC-25")
async def test_a_transport_closed_before_it_was_opened_stays_closed(
    entry: dict[str, Any],
) -> None:
    transport = StdioTransport(entry)
    await transport.close()
    with pytest.raises(ChannelClosed):
        await transport.connect()


@pytest.mark.covers("DEC-10", "RPC-09")
async def test_request_ids_are_integers_from_one_or_strings(entry: dict[str, Any]) -> None:
    async with await create_stdio_transport(entry) as transport:
        assert [await transport.request("id") for _ in range(3)] == [1, 2, 3]
    async with StdioTransport({**entry, "requestIdFormat": "string"}) as transport:
        first, second = await transport.request("id"), await transport.request("id")
        assert isinstance(first, str)
        assert first != second


@pytest.mark.covers("TRN-02", "TRN-10")
async def test_an_abort_with_and_without_a_reason_and_a_timeout_raise_different_errors(
    entry: dict[str, Any],
) -> None:
    async with StdioTransport(entry) as transport:
        signal = AbortSignal()
        asked = asyncio.create_task(
            transport.request("silence", options=RequestOptions(signal=signal))
        )
        await asyncio.sleep(0)
        signal.abort(KeyError("the user left"))
        with pytest.raises(KeyError, match="the user left"):
            await asked
        with pytest.raises(KeyError):  # the signal was aborted before the request
            await transport.request("silence", options=RequestOptions(signal=signal))
        bare = AbortSignal()
        asked = asyncio.create_task(
            transport.request("silence", options=RequestOptions(signal=bare))
        )
        await asyncio.sleep(0)
        bare.abort()
        with pytest.raises(asyncio.CancelledError):
            await asked
        with pytest.raises(RequestTimeout, match="Request timeout after 30ms"):
            await transport.request("silence", {}, RequestOptions(timeout=0.03))
        unused = AbortSignal()
        assert await transport.request("echo", {}, options=RequestOptions(signal=unused)) == {}
        unused.abort()  # aborting after the response has no effect


@pytest.mark.covers("TRN-02")
async def test_progress_is_reported_to_the_callback_in_the_options(entry: dict[str, Any]) -> None:
    said: list[Any] = []
    async with StdioTransport(entry) as transport:
        options = RequestOptions(on_progress=lambda *progress: said.append(progress))
        await transport.request("progress", {}, options=options)
    assert said == [(1, 2, None)]


@pytest.mark.covers("TRN-16", "TRN-17")
async def test_requests_from_the_server_are_answered_by_the_transport(
    entry: dict[str, Any],
) -> None:
    class Busy(Exception):
        code = -32050

    async def answer(method: str, params: dict[str, Any]) -> Any:
        assert (method, params) == ("roots/list", {})
        return {"roots": []}

    async def fail(method: str, params: dict[str, Any]) -> Any:
        raise Busy("not now")

    async def break_down(method: str, params: dict[str, Any]) -> Any:
        raise ZeroDivisionError

    async with StdioTransport(entry) as transport:
        await transport.request("initialize", {"protocolVersion": "2025-11-25"})
        # This request is answered without a registered callback.
        assert await transport.request("ask") == {
            "jsonrpc": "2.0",
            "id": "q",
            "error": {"code": -32601, "message": "Method not found"},
        }
        transport.on_request = answer
        assert (await transport.request("ask"))["result"] == {"roots": []}
        transport.on_request = fail
        assert (await transport.request("ask"))["error"] == {"code": -32050, "message": "not now"}
        transport.on_request = break_down
        assert (await transport.request("ask"))["error"]["code"] == -32603


@pytest.mark.covers("STD-07", "TRN-07")
async def test_the_exit_of_a_server_is_reported_once_with_its_code(entry: dict[str, Any]) -> None:
    transport = StdioTransport(entry)
    ended: asyncio.Future[ChannelClosed] = asyncio.get_running_loop().create_future()
    transport.on_close = ended.set_result
    await transport.connect()
    with pytest.raises(ChannelClosed, match="Transport closed: the server exited with code 4"):
        await transport.request("leave")
    assert (await ended).exit_code == 4
    await transport.close()


@pytest.mark.covers("TRN-03")
async def test_the_type_of_an_entry_selects_the_transport(
    entry: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(create_transport(entry), StdioTransport)
    assert isinstance(create_transport({**entry, "type": "stdio"}), StdioTransport)
    assert isinstance(create_transport({**entry, "transport": "stdio"}), StdioTransport)
    assert isinstance(create_transport(MCPStdioServerConfig(command="x")), StdioTransport)
    with pytest.raises(ConfigError, match="Unknown server type: carrier-pigeon"):
        create_transport({"type": "carrier-pigeon"})
    with pytest.raises(ConfigError, match="command"):
        create_transport({"type": "stdio"})
    with caplog.at_level(logging.WARNING):
        remote = create_transport({"url": "https://example.com/mcp"})
    assert isinstance(remote, HttpTransport)
    assert 'is read as "http"' in caplog.text
    custom = StdioTransport(entry)
    register_transport("custom", lambda given: custom)
    assert create_transport({"type": "custom"}) is custom


@pytest.mark.covers("TRN-09", "DEC-03")
def test_the_timeout_variable_overrides_the_timeout_of_the_entry_and_the_default(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert request_timeout() == 30.0
    assert request_timeout(1500) == 1.5
    assert request_timeout(0) == 0
    assert StdioTransport({"command": "x", "timeout": 250}).timeout == 0.25
    assert StdioTransport({"command": "x", "requestTimeoutMs": 125}).timeout == 0.125
    monkeypatch.setenv("FAIRLEAD_MCP_TIMEOUT_MS", "7000")
    assert request_timeout(1500) == 7.0
    for wrong in ("soon", "-1"):
        monkeypatch.setenv("FAIRLEAD_MCP_TIMEOUT_MS", wrong)
        assert request_timeout(1500) == 1.5
        assert wrong in caplog.text


@pytest.mark.covers("TRN-19")
async def test_a_factory_closes_the_transport_if_connecting_fails() -> None:
    with pytest.raises(ConnectFailed):
        await create_stdio_transport({"command": "no-such-program-at-all"})


def test_a_remote_server_is_not_a_child_process() -> None:
    with pytest.raises(ConfigError, match="a server of type 'http' is not a child process"):
        StdioTransport({"type": "http", "url": "http://x"})
