"""Tests of the tool-call dialect, on the server and on the client side."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import ChannelClosed, RemoteProtocolError
from fairlead.protocol.envelope import TransportContext
from fairlead.protocol.json_edit import members_of
from fairlead.transport.channel import Incoming
from fairlead.transport.line_channel import HIGH_WATER
from fairlead.transport.websocket.toolcall_dialect import (
    ToolCallClientChannel,
    ToolCallServerChannel,
    is_tool_call,
)
from fairlead.transport.websocket.websocket_channel import WebSocketChannel, WebSocketClosed
from fairlead.wire import Decoder, Failure, Notification, Request, Success, failure

CONTEXT = TransportContext(transport_type="websocket", peer_address="10.0.0.7")


class FakeSocket:
    """A WebSocket that records sent frames and receives nothing."""

    def __init__(self) -> None:
        self.open = True
        self.sent: list[Any] = []

    async def receive(self) -> str | bytes:
        await asyncio.Event().wait()
        raise WebSocketClosed(1006)

    async def send(self, frame: bytes) -> None:
        self.sent.append(json.loads(frame))

    async def close(self, code: int, reason: str) -> None:
        self.open = False

    def abort(self) -> None:
        self.open = False


async def turns() -> None:
    """Run all callbacks that are due."""
    for _ in range(5):
        await asyncio.sleep(0)


def members(frame: dict[str, Any]) -> dict[str, Raw]:
    found = members_of(json.dumps(frame).encode())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ({"name": "add"}, True),
        ({"name": "add", "id": 1, "arguments": {}}, True),
        ({"id": 1}, False),
        ({"name": "add", "method": "tools/call"}, False),
        ({"name": "add", "jsonrpc": "2.0"}, False),
    ],
)
def test_a_frame_with_a_name_and_without_jsonrpc_members_is_a_call(
    frame: dict[str, Any], expected: bool
) -> None:
    assert is_tool_call(members(frame)) is expected


class Served:
    """A server's channel, run until the test closes it."""

    def __init__(self) -> None:
        self.socket = FakeSocket()
        self.carrier = WebSocketChannel(CONTEXT, self.socket)
        self.channel = ToolCallServerChannel(self.carrier, CONTEXT, Decoder())
        self.heard: list[Incoming] = []
        self.running = asyncio.ensure_future(self.channel.run(self.heard.append))

    async def start(self) -> "Served":
        await turns()
        return self

    def hello(self) -> Request:
        first = self.heard[0]
        assert isinstance(first, Request)
        return first

    async def close(self) -> None:
        await self.channel.close()
        await self.running
        await self.carrier.close()


async def test_the_server_receives_a_simulated_handshake() -> None:
    served = await Served().start()
    hello, ready = served.heard
    assert isinstance(hello, Request)
    assert isinstance(ready, Notification)
    assert (hello.method, ready.method) == ("initialize", "notifications/initialized")
    params = json.loads(bytes(hello.params))  # type: ignore[arg-type]
    assert params == {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "tool-call frames", "version": "0"},
    }
    await served.close()


async def test_a_tool_call_frame_becomes_a_request_and_its_response_a_frame() -> None:
    served = await Served().start()
    frame = {"id": 7, "name": "add", "arguments": {"a": 1}, "_meta": {"k": 1}, "other": 1}
    served.channel.take_call(members(frame))
    call = served.heard[2]
    assert isinstance(call, Request)
    assert (call.id, call.method) == (7, "tools/call")
    assert json.loads(bytes(call.params)) == {  # type: ignore[arg-type]
        "name": "add",
        "arguments": {"a": 1},
        "_meta": {"k": 1},
    }
    served.channel.send(Success(7, Raw(b'{"x":1}')))
    served.channel.send_success(8, b'{"x":2}')
    served.channel.send(failure(9, -32602, "no"))
    await turns()
    assert [one["id"] for one in served.socket.sent] == [7, 8, 9]
    assert [one.get("result") for one in served.socket.sent] == [{"x": 1}, {"x": 2}, None]
    await served.close()


async def test_a_tool_call_frame_without_an_id_is_answered_with_an_error() -> None:
    served = await Served().start()
    with pytest.raises(RemoteProtocolError, match="A tool call must have an id") as refused:
        served.channel.take_call(members({"name": "add"}))
    assert refused.value.code == -32600
    await served.close()


async def test_the_response_to_the_simulated_handshake_is_not_sent() -> None:
    served = await Served().start()
    served.channel.send(Success(served.hello().id, Raw(b"{}")))
    served.channel.send_success(served.hello().id, b"{}")
    await turns()
    assert served.socket.sent == []
    served.channel.take_call(members({"id": 1, "name": "add"}))
    assert len(served.heard) == 3
    await served.close()


async def test_a_failed_handshake_fails_every_tool_call_frame() -> None:
    served = await Served().start()
    served.channel.send(failure(served.hello().id, -32600, "not today"))
    served.channel.take_call(members({"id": 1, "name": "add"}))
    await turns()
    assert len(served.heard) == 2
    error = {"code": -32600, "message": "not today"}
    assert served.socket.sent == [{"jsonrpc": "2.0", "id": 1, "error": error}]
    await served.close()


async def test_requests_of_the_server_fail_with_method_not_found() -> None:
    served = await Served().start()
    served.channel.send(Request("q", "sampling/createMessage"))
    served.channel.send(Notification("notifications/progress"))
    assert len(served.heard) == 2, "the failure is delivered after `send` returns"
    await turns()
    assert served.socket.sent == []
    refused = served.heard[2]
    assert isinstance(refused, Failure)
    error = {"code": -32601, "message": "Tool-call frames cannot carry requests to the client"}
    assert (refused.id, json.loads(bytes(refused.error))) == ("q", error)
    await served.close()


async def test_a_server_channel_is_congested_while_its_websocket_is_congested() -> None:
    served = await Served().start()
    assert served.channel.congested is False
    served.carrier.write(b'"' + b"x" * HIGH_WATER + b'"')
    assert served.channel.congested is True
    await served.channel.drain()
    assert served.channel.congested is False
    await served.close()


async def test_a_closed_channel_refuses_to_send() -> None:
    served = await Served().start()
    await served.channel.close()
    with pytest.raises(ChannelClosed) as refused:
        served.channel.send_success(1, b"{}")
    assert refused.value.delivered is False
    await served.close()


# The client's end


class Calling:
    """A client's channel, run until the test closes it."""

    def __init__(self, context: TransportContext = CONTEXT) -> None:
        self.socket = FakeSocket()
        self.channel = ToolCallClientChannel(context, self.socket)
        self.heard: list[Incoming] = []
        self.running = asyncio.ensure_future(self.channel.run(self.heard.append))

    def call(self, request_id: str, **params: Any) -> None:
        raw = Raw(json.dumps(params).encode())
        self.channel.send(Request(request_id, "tools/call", raw))

    async def close(self) -> None:
        await self.channel.close()
        await self.running


@pytest.mark.parametrize(("address", "name"), [("10.0.0.7", "10.0.0.7"), (None, "")])
async def test_the_handshake_is_answered_by_the_channel(address: str | None, name: str) -> None:
    client = Calling(TransportContext(transport_type="websocket", peer_address=address))
    await turns()
    client.channel.send(Request("h", "initialize", Raw(b'{"protocolVersion":"2025-06-18"}')))
    client.channel.send(Request("p", "ping"))
    client.channel.send(Request("l", "tools/list"))
    client.channel.send(Notification("notifications/initialized"))
    assert client.heard == []
    await turns()
    hello, pong, refused = client.heard
    assert isinstance(hello, Success)
    assert isinstance(pong, Success)
    assert isinstance(refused, Failure)
    assert (hello.id, pong.id, refused.id) == ("h", "p", "l")
    assert json.loads(bytes(hello.result)) == {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": name, "version": ""},
    }
    assert bytes(pong.result) == b"{}"
    error = {"code": -32601, "message": "Tool-call frames cannot carry tools/list"}
    assert json.loads(bytes(refused.error)) == error
    assert client.socket.sent == []
    await client.close()


async def test_tool_calls_are_numbered_and_responses_get_the_ids_of_their_requests() -> None:
    client = Calling()
    await turns()
    client.call("a", name="add", arguments={"x": 1})
    client.call("b", name="now")
    await turns()
    assert client.socket.sent == [
        {"id": 1, "name": "add", "arguments": {"x": 1}},
        {"id": 2, "name": "now"},
    ]
    client.channel.take(b'{"id": 2, "result": {"n": 2}}')
    client.channel.take(b'{"id": 1, "error": {"code": -1, "message": "no"}}')
    client.channel.take(b'{"id": 1, "result": {}}')  # a second response
    client.channel.take(b'{"id": 99, "result": {}}')  # the response to a call that was never made
    second, first = client.heard
    assert isinstance(second, Success)
    assert isinstance(first, Failure)
    assert (second.id, first.id) == ("b", "a")
    await client.close()


async def test_the_response_to_a_cancelled_tool_call_is_dropped() -> None:
    client = Calling()
    await turns()
    client.call("a", name="add")
    client.call("b", name="add")
    client.channel.send(Notification("notifications/cancelled", Raw(b'{"requestId":"a"}')))
    client.channel.take(b'{"id": 1, "result": {}}')
    assert client.heard == []
    client.channel.take(b'{"id": 2, "result": {}}')
    assert [one.id for one in client.heard if isinstance(one, Success)] == ["b"]
    await client.close()


async def test_a_malformed_response_fails_its_call() -> None:
    client = Calling()
    await turns()
    client.call("a", name="add")
    client.channel.take(b'{"id": 1, "error": "no object"}')
    client.channel.take(b"{")
    malformed, unreadable = client.heard
    assert isinstance(malformed, RemoteProtocolError)
    assert isinstance(unreadable, RemoteProtocolError)
    assert (malformed.request_id, unreadable.request_id) == ("a", None)
    client.channel.take(b'{"id": 1, "result": {}}')
    assert len(client.heard) == 2, "a second response is dropped"
    await client.close()


async def test_sending_fails_if_the_websocket_is_not_open() -> None:
    client = Calling()
    await turns()
    client.socket.open = False
    for message in (Request("p", "ping"), Notification("notifications/initialized")):
        with pytest.raises(ChannelClosed, match="WebSocket not open"):
            client.channel.send(message)
    await turns()
    assert client.heard == []
    await client.close()


async def test_frames_that_are_not_responses_are_delivered_unchanged() -> None:
    channel = ToolCallClientChannel(CONTEXT, FakeSocket())
    got: list[Incoming] = []
    running = asyncio.ensure_future(channel.run(got.append))
    await turns()
    channel.arrived('{"jsonrpc":"2.0","method":"n"}')
    channel.arrived("no json")
    channel.arrived('{"id":77,"result":{}}')
    note, error = got
    assert note == Notification("n")
    assert isinstance(error, RemoteProtocolError)
    assert error.request_id is None
    await channel.close()
    await running
