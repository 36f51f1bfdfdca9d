import asyncio
import logging

import pytest

from fairlead.errors import ConnectFailed, HttpError, RemoteProtocolError, RequestTimeout
from fairlead.transport.http.client.http1.http_client import HttpClient, HttpResponse
from fairlead.transport.http.client.one_shot import call_mcp
from tests.support.scripted_http_server import Call, raw_server
from tests.support.virtual_time import VirtualTime

pytestmark = pytest.mark.covers("RPC-14")


async def test_a_single_call_returns_the_response_envelope_unchanged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handle(call: Call) -> None:
        envelope = {"jsonrpc": "2.0", "id": 1, "error": {"code": 7, "message": "x"}, "more": 1}
        await call.json(envelope, Mcp_Session_Id="s2")

    caplog.set_level(logging.DEBUG, "fairlead.transport")
    async with raw_server(handle) as server:
        url = f"{server.url}?api_key=hidden-thing"
        answer = await call_mcp(url, "x/y", {"a": 1}, headers={"X-A": "1"}, session_id="s1")
        (call,) = server.calls
    assert sorted(answer) == ["error", "id", "jsonrpc", "more"]
    assert answer["error"] == {"code": 7, "message": "x"}
    assert answer.session_id == "s2"
    assert call.message == {"jsonrpc": "2.0", "id": 1, "method": "x/y", "params": {"a": 1}}
    assert (call.headers["mcp-session-id"], call.headers["x-a"]) == ("s1", "1")
    assert "x/y" in caplog.text
    assert "hidden-thing" not in caplog.text


async def test_the_response_to_a_single_call_may_be_an_event() -> None:
    async def handle(call: Call) -> None:
        await call.begin_events()
        await call.event({"jsonrpc": "2.0", "method": "notifications/message"})
        await call.result_event({"x": 1})
        await call.gone()  # the call does not wait for the end of the stream

    async with raw_server(handle) as server:
        assert (await call_mcp(server.url, "x"))["result"] == {"x": 1}


async def test_an_error_status_raises_an_http_error() -> None:
    async def handle(call: Call) -> None:
        await call.answer(503, "later", Retry_After="3")

    async with raw_server(handle) as server:
        with pytest.raises(HttpError) as refused:
            await call_mcp(server.url, "x")
    assert str(refused.value) == "MCP request failed: 503 Service Unavailable"
    assert (refused.value.status, refused.value.retry_after) == (503, 3.0)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"\xff"])
async def test_a_single_call_with_an_invalid_response_body_raises_a_parse_error(
    body: bytes,
) -> None:
    async def handle(call: Call) -> None:
        await call.answer(200, body)

    async with raw_server(handle) as server:
        with pytest.raises(RemoteProtocolError, match="Failed to parse MCP response"):
            await call_mcp(server.url, "x")


async def test_single_calls_time_out_and_can_be_cancelled() -> None:
    async def handle(call: Call) -> None:
        await call.gone()

    async with raw_server(handle) as server:
        with pytest.raises(RequestTimeout, match="Request timeout after 50ms"):
            await call_mcp(server.url, "x", timeout=0.05)
        calling = asyncio.create_task(call_mcp(server.url, "x", timeout=0))
        await server.wait_for("x", 2)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        url = server.url
    with pytest.raises(ConnectFailed):
        await call_mcp(url, "x")


async def test_a_single_call_closes_its_connection_after_a_json_or_stream_response() -> None:
    async def handle(call: Call) -> None:
        if call.rpc == "stream":
            await call.begin_events()
            await call.event("no json")
            await call.event({"jsonrpc": "2.0", "id": 7, "method": "roots/list"})
            await call.event({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}})
            await call.gone()
        else:
            await call.result({})

    async with raw_server(handle) as server, asyncio.timeout(5):
        answer = await call_mcp(server.url, "plain", session_id="s1")
        assert answer == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert answer.session_id == "s1", "the session id that was passed in"
        answer = await call_mcp(server.url, "stream")
        assert answer["error"] == {"code": 1, "message": "no"}
        assert answer.session_id is None
        while server.open:
            await asyncio.sleep(0)
        plain, streamed = server.calls
    assert plain.message == {"jsonrpc": "2.0", "id": 1, "method": "plain"}
    assert "mcp-session-id" not in streamed.headers
    assert server.connections == 2


@pytest.mark.parametrize("stream", [b"", b"data: {}\n\n", b"data: [1]\n\n", b": hi\n\n"])
async def test_a_single_call_raises_a_parse_error_if_the_stream_has_no_response(
    stream: bytes,
) -> None:
    async def handle(call: Call) -> None:
        await call.begin_events()
        if stream:
            await call.chunk(stream)
        await call.end()

    async with raw_server(handle) as server:
        with pytest.raises(RemoteProtocolError, match="Failed to parse MCP response") as failed:
            await call_mcp(server.url, "x")
    assert failed.value.code == -32700


async def test_a_single_call_times_out_after_one_minute(virtual_time: VirtualTime) -> None:
    async def never(*args: object) -> HttpResponse:
        await asyncio.Event().wait()
        raise AssertionError

    begun = virtual_time.now
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RequestTimeout) as late:
        patch.setattr(HttpClient, "open", never)
        await call_mcp("http://a.example", "x")
    assert virtual_time.now - begun == pytest.approx(60.0)
    assert (late.value.seconds, late.value.method) == (60.0, "x")
