"""The tool-call dialect: frames that are nothing but calls, for programs that speak no JSON-RPC.

    {"id": 1, "name": "add", "arguments": {"a": 1, "b": 2}}

The answer is a tool response or a tool error with the same id: the same envelopes as everywhere.
There is no handshake, so each end plays the missing part to its own peer layer.
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
from .client_channel import WebSocketClientChannel, to_jsonrpc
from .websocket_channel import WebSocketChannel, WebSocketConnection

__all__ = ["ToolCallClientChannel", "ToolCallServerChannel", "is_tool_call"]

_decode_id = msgspec.json.Decoder(RequestId).decode


def is_tool_call(members: RawMembers) -> bool:
    """Whether a frame that is no JSON-RPC speaks this dialect."""
    return "jsonrpc" not in members and "method" not in members and "name" in members


# The server's end


class ToolCallServerChannel(StreamedChannel):
    """A `Channel` for the tool calls of one WebSocket, beside its JSON-RPC.

    A conversation of its own: it is introduced with a handshake that the client never made, so
    that one that it makes later, or ids that it also uses in JSON-RPC, do not get in the way.
    """

    def __init__(
        self, carrier: WebSocketChannel, context: TransportContext, decoder: Decoder
    ) -> None:
        super().__init__(context)
        self._carrier = carrier
        self._decoder = decoder
        self._hello = secrets.token_hex(8)  # the id of a request that nobody may answer
        self._refused: Failure | None = None  # the answer to that, if it was one
        self.take(_introduction(self._hello))
        self.take(Notification("notifications/initialized"))

    def take_call(self, members: RawMembers) -> None:
        """Hand over a call as a `tools/call`.

        Raises:
            RemoteProtocolError: it has no id that an answer could carry.
        """
        if "id" not in members:
            raise RemoteProtocolError("A tool call has an id", code=INVALID_REQUEST)
        call = {name: members[name] for name in ("name", "arguments", "_meta") if name in members}
        envelope = {"jsonrpc": "2.0", "id": members["id"], "method": "tools/call", "params": call}
        message = self._decoder.decode(to_json(envelope))
        assert not isinstance(message, Batch)
        if self._refused is not None and isinstance(message, Request):
            self._write(encode(replace(self._refused, id=message.id)))
        else:
            self.take(message)

    # Channel

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        """Only answers are part of the dialect."""
        if isinstance(message, Success | Failure):
            if message.id != self._hello:
                self._write(encode(message))
            elif isinstance(message, Failure):
                self._refused = message  # and so is every call
        elif isinstance(message, Request):
            no = failure(message.id, METHOD_NOT_FOUND, "Tool-call frames cannot ask back")
            asyncio.get_running_loop().call_soon(self.take, no)

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


def _introduction(request_id: str) -> Request:
    params = {
        "protocolVersion": NEWEST_HANDSHAKE.value,
        "capabilities": {},
        "clientInfo": {"name": "tool-call frames", "version": "0"},
    }
    return Request(request_id, "initialize", Raw(to_json(params)))


# The client's end


class ToolCallClientChannel(WebSocketClientChannel):
    """Sends each `tools/call` as a frame of the dialect and gives its answer the request's id.

    The rest of the protocol ends here: the handshake is answered as such a server would, if it
    could, and everything else is no method it has.
    """

    def __init__(self, context: TransportContext, socket: WebSocketConnection) -> None:
        super().__init__(context, socket)
        self._last = 0
        self._waiting: dict[RequestId, RequestId] = {}  # ids of frames to those of requests
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
        """Answers need no `jsonrpc` here."""
        if b'"jsonrpc"' not in frame:
            members = members_of(frame)
            if members is not None and ("result" in members or "error" in members):
                frame = to_jsonrpc(members, "id", "result", "error")
        super().take(frame)

    def hand_over(self, item: Incoming) -> None:
        if isinstance(item, Success | Failure):
            request_id = None if item.id is None else self._waiting.pop(item.id, None)
            if request_id is None:
                return  # late, given up or never asked
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
        """The dialect cannot cancel; only we stop waiting."""
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
    """Of a message that we made ourselves."""
    return {} if isinstance(message.params, UnsetType) else members_of(message.params) or {}


def _not_here(request: Request) -> Message:
    why = f"Tool-call frames cannot carry {request.method}"
    return failure(request.id, METHOD_NOT_FOUND, why)
