"""The tool-call dialect: frames that contain only tool calls, for programs without JSON-RPC.

    {"id": 1, "name": "add", "arguments": {"a": 1, "b": 2}}

The response is a tool response or a tool error with the same id, in the usual envelope. The dialect
has no handshake, so each end simulates one for its own peer layer.
"""

import asyncio
import secrets
from collections.abc import Callable

import msgspec
from msgspec import Raw, UnsetType
from msgspec.structs import replace

from ...errors import ChannelClosed, RemoteProtocolError
from ...protocol.caller import read_params_head
from ...protocol.envelope import TransportContext
from ...protocol.json_edit import RawMembers, members_of
from ...protocol.revisions import NEWEST_HANDSHAKE
from ...wire import (
    Batch,
    Decoder,
    Failure,
    Message,
    Notification,
    Request,
    RequestId,
    Success,
    encode,
    encode_success,
    failure,
    to_json,
)
from ...wire.error_codes import INVALID_REQUEST, METHOD_NOT_FOUND
from ..channel import Incoming
from ..http.server.sessions.streamed_channel import StreamedChannel
from .websocket_channel import (
    WebSocketChannel,
    WebSocketClientChannel,
    WebSocketConnection,
    to_jsonrpc,
)

__all__ = ["ToolCallClientChannel", "ToolCallServerChannel", "is_tool_call"]

_decode_id = msgspec.json.Decoder(RequestId).decode


def is_tool_call(members: RawMembers) -> bool:
    """Return True if a frame that is not JSON-RPC is a call of this dialect."""
    return "jsonrpc" not in members and "method" not in members and "name" in members


# The server's end


class ToolCallServerChannel(StreamedChannel):
    """A `Channel` for the tool calls of one WebSocket, separate from its JSON-RPC channel.

    The channel has its own conversation, which starts with a simulated handshake. A later handshake
    of the client, or ids that the client also uses in JSON-RPC, therefore do not conflict with it.
    """

    def __init__(
        self, carrier: WebSocketChannel, context: TransportContext, decoder: Decoder
    ) -> None:
        super().__init__(context)
        self._carrier = carrier
        self._decoder = decoder
        # The id of the simulated `initialize`. It is random, so that no id of the client equals it.
        self._hello = secrets.token_hex(8)
        # the error response to the simulated `initialize`, if it failed
        self._refused: Failure | None = None
        client = {"name": "tool-call frames", "version": "0"}
        self.simulate_handshake(self._hello, NEWEST_HANDSHAKE, client)

    def take_call(self, members: RawMembers) -> None:
        """Deliver a call as a `tools/call` request.

        Raises:
            RemoteProtocolError: The call has no id or an invalid id.
        """
        if "id" not in members:
            raise RemoteProtocolError("A tool call must have an id", code=INVALID_REQUEST)
        call = {name: members[name] for name in ("name", "arguments", "_meta") if name in members}
        envelope = {"jsonrpc": "2.0", "id": members["id"], "method": "tools/call", "params": call}
        message = self._decoder.decode(to_json(envelope))
        assert not isinstance(message, Batch)
        if self._refused is not None and isinstance(message, Request):
            self._write(encode(replace(self._refused, id=message.id)))
        else:
            self.hand_over(message)

    # Channel

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        """Send a response; the dialect has no other messages. Requests to the client fail."""
        if isinstance(message, Success | Failure):
            if message.id != self._hello:
                self._write(encode(message))
            elif isinstance(message, Failure):
                # Every call is answered with this error.
                self._refused = message
        elif isinstance(message, Request):
            no = failure(
                message.id, METHOD_NOT_FOUND, "Tool-call frames cannot carry requests to the client"
            )
            # In a later loop iteration: the peer layer registers the request after `send` returns.
            asyncio.get_running_loop().call_soon(self.hand_over, no)

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        if request_id != self._hello:
            self._write(encode_success(request_id, result))

    def _write(self, frame: bytes) -> None:
        if self.over:
            raise ChannelClosed(delivered=False)
        self._carrier.write(frame)

    @property
    def congested(self) -> bool:
        return self._carrier.congested

    async def drain(self) -> None:
        await self._carrier.drain()

    async def close(self) -> None:
        self._end()


# The client's end


class ToolCallClientChannel(WebSocketClientChannel):
    """A channel that sends each `tools/call` as a frame of the dialect.

    Responses get the id of their request. The channel answers `initialize` and `ping` itself, and
    all other methods with a "method not found" error.
    """

    def __init__(self, context: TransportContext, socket: WebSocketConnection) -> None:
        super().__init__(context, socket)
        self._last = 0
        self._waiting: dict[RequestId, RequestId] = {}  # maps ids of frames to ids of requests
        self._local: dict[str, Callable[[Request], Message]] = {
            "initialize": self._introduce,
            "ping": lambda request: Success(request.id, Raw(b"{}")),
        }

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        self.check_open()
        if isinstance(message, Request):
            if message.method == "tools/call":
                self._call(message)
            else:
                answer = self._local.get(message.method, _not_here)(message)
                self._loop.call_soon(super().hand_over, answer)
        elif isinstance(message, Notification):
            if message.method == "notifications/cancelled":
                self._forget(message)
        else:
            super().send(message)

    def take(self, frame: bytes) -> None:
        """Decode a frame. Responses of this dialect need no `jsonrpc` member."""
        if b'"jsonrpc"' not in frame:
            members = members_of(frame)
            if members is not None and ("result" in members or "error" in members):
                frame = to_jsonrpc(members, "id", "result", "error")
        super().take(frame)

    def hand_over(self, item: Incoming) -> None:
        if isinstance(item, Success | Failure):
            request_id = None if item.id is None else self._waiting.pop(item.id, None)
            if request_id is None:
                return  # late, cancelled or never requested
            item = replace(item, id=request_id)
        elif isinstance(item, RemoteProtocolError) and item.request_id is not None:
            item.request_id = self._waiting.pop(item.request_id, None)
        super().hand_over(item)

    def _call(self, request: Request) -> None:
        head = read_params_head(request.params)
        frame: dict[str, object] = {"id": self._last + 1, "name": head.name}
        if not isinstance(head.arguments, UnsetType):
            frame["arguments"] = head.arguments
        self.write(to_json(frame))
        self._last += 1
        self._waiting[self._last] = request.id

    def _forget(self, cancelled: Notification) -> None:
        """Ignore the response to a cancelled request; the dialect cannot cancel the call."""
        given_up = _decode_id(_params(cancelled)["requestId"])
        for frame_id, request_id in self._waiting.items():
            if request_id == given_up:
                del self._waiting[frame_id]
                return

    def _introduce(self, request: Request) -> Message:
        known = {
            "protocolVersion": _params(request)["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": self.context.peer_address or "", "version": ""},
        }
        return Success(request.id, Raw(to_json(known)))


def _params(message: Request | Notification) -> RawMembers:
    """Return the params of a message from our own client, without validating them."""
    return {} if isinstance(message.params, UnsetType) else members_of(message.params) or {}


def _not_here(request: Request) -> Message:
    why = f"Tool-call frames cannot carry {request.method}"
    return failure(request.id, METHOD_NOT_FOUND, why)
