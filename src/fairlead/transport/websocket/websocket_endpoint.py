"""The server's WebSocket endpoint on ASGI, with the same admission checks as HTTP."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from ...errors import RemoteProtocolError
from ...limits import SOCKETS_PER_CLIENT
from ...protocol.caller import Principal
from ...protocol.envelope import TransportContext
from ...protocol.identity.client_key import client_key
from ...protocol.json_edit import RawMembers, members_of
from ...wire.error_codes import INVALID_REQUEST
from ..background_tasks import BackgroundTasks
from ..channel import Channel
from ..client_shares import ClientShares, NoShareLeft
from ..http.server.asgi import TEXT, HeaderMap, Receive, Scope, Send
from ..http.server.http_settings import HttpSettings
from ..http.server.refusals import report_refusal
from ..http.server.request_guard import RequestGuard, RequestRefusal
from ..http.server.sessions.http_session import AcceptSession, ServedPeer
from ..http.server.token_expiry import expiring
from .toolcall_dialect import ToolCallServerChannel, is_tool_call
from .websocket_channel import SUBPROTOCOL, WebSocketChannel, WebSocketClosed

__all__ = ["WebSocketEndpoint"]

# Headers that decide on admission. If one occurs twice, a proxy may have checked a different value.
_DECISIVE = (b"host", b"origin", b"authorization", b"dpop")
_REASON = 120  # bytes of a reason that fit in a close frame

log = logging.getLogger("fairlead.transport")


class WebSocketEndpoint:
    """The WebSocket connections of an endpoint."""

    def __init__(self, accept: AcceptSession, settings: HttpSettings, guard: RequestGuard) -> None:
        """`accept` starts to serve a channel."""
        self._accept = accept
        self._settings = settings
        self._guard = guard
        self._open: set[_ServedChannel] = set()
        self._shares: ClientShares[_ServedChannel] = ClientShares(
            settings.max_sockets, settings.max_sockets_per_client, SOCKETS_PER_CLIENT
        )
        self._ending = BackgroundTasks()
        self.draining = False  # no new connections are accepted

    @property
    def requests_in_progress(self) -> int:
        """The number of requests on all connections that are not answered yet."""
        return sum(channel.requests_in_progress for channel in self._open)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket until it is closed."""
        await receive()  # websocket.connect
        headers: dict[bytes, bytes] = dict(scope["headers"])
        who = await self._admit(scope, headers)
        if self.draining and not isinstance(who, RequestRefusal):
            later = ((b"retry-after", b"5"),)
            who = RequestRefusal(503, "the server is shutting down", later, "shutting_down")
        if isinstance(who, RequestRefusal):
            report_refusal(who, self._settings.on_refused)
            await reject_upgrade(scope, send, who)
            return
        offered = scope.get("subprotocols") or ()
        chosen = SUBPROTOCOL if SUBPROTOCOL in offered else None
        socket = _AsgiSocket(receive, send)
        with contextlib.suppress(WebSocketClosed):
            await socket.tell({"type": "websocket.accept", "subprotocol": chosen})
            await self._converse(socket, _context(scope, headers), who)

    async def close(self, drain: float = 0.0) -> None:
        """Close all connections with 1001 and cancel requests that take longer than `drain`
        seconds.
        """
        if self._open:
            await asyncio.gather(
                *(c.end(1001, "the server is shutting down", drain) for c in list(self._open))
            )

    async def _converse(
        self, socket: "_AsgiSocket", context: TransportContext, principal: Principal
    ) -> None:
        def accept(channel: Channel) -> ServedPeer:
            return self._accept(channel, principal)

        client = client_key(principal, context.peer_address)
        try:
            victim = self._shares.make_room(client)
        except NoShareLeft:
            await socket.close(1013, "too many connections; try again later")
            return
        channel = _ServedChannel(context, socket, accept, self._settings.max_body)
        try:
            channel.served = accept(channel)
        # A failure of the application must be reported to the client with a close code.
        except Exception:
            log.exception("a WebSocket could not be served")
            await socket.close(1011, "internal error")
            return
        self._open.add(channel)
        self._shares.add(client, channel)
        if victim is not None:
            self._shares.discard(victim)
            self._end_soon(victim)
        try:
            with expiring(lambda: principal, lambda: self._end_expired(channel)):
                await channel.wait_closed()
        finally:
            self._open.discard(channel)
            self._shares.discard(channel)
            await channel.end(1001, "the server is shutting down")

    def _end_expired(self, channel: "_ServedChannel") -> None:
        self._ending.start(channel.end(1008, "the access token has expired"))

    def _end_soon(self, channel: "_ServedChannel") -> None:
        self._ending.start(channel.end(1013, "this client has too many connections"))

    async def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> Principal | RequestRefusal:
        """Return the principal of a client, or the reason to refuse it."""
        if len(headers) != len(scope["headers"]):
            names = [name for name, _ in scope["headers"]]
            if any(names.count(name) > 1 for name in _DECISIVE):
                return RequestRefusal(
                    400, "host, origin, authorization and dpop headers must not be repeated"
                )
        refusal = self._guard.refuse(headers, scope.get("server"))
        if refusal is not None:
            return refusal
        path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
        who = await self._guard.authenticate(headers, "GET", path)
        if isinstance(who, RequestRefusal):
            return who
        refusal = self._guard.refuse_scopes(who, (), path)
        if refusal is not None:
            return refusal
        place = self._settings.ws_path
        if place is None:
            return RequestRefusal(404, "WebSockets are not served here")
        if path != place.rstrip("/"):
            return RequestRefusal(404, f"WebSockets are served at {place}")
        return who


async def reject_upgrade(scope: Scope, send: Send, refusal: RequestRefusal) -> None:
    """Refuse a WebSocket handshake, with status and body if the ASGI server supports that."""
    text = f"{refusal.status} {HTTPStatus(refusal.status).phrase}: {refusal.message}\n"
    if "websocket.http.response" not in (scope.get("extensions") or ()):
        await send({"type": "websocket.close", "code": 1008, "reason": _cut(refusal.message)})
        return
    others = [field for field in refusal.headers if field[0] != b"connection"]
    fields = [(b"content-type", TEXT), *others]
    start = {"type": "websocket.http.response.start", "status": refusal.status, "headers": fields}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": text.encode()})


class _ServedChannel(WebSocketChannel):
    """The channel of one client, which may use both dialects."""

    def __init__(
        self,
        context: TransportContext,
        socket: "_AsgiSocket",
        accept: Callable[[Channel], ServedPeer],
        limit: int,
    ) -> None:
        super().__init__(context, socket)
        self.served: ServedPeer | None = None  # the peer that serves this channel
        self._calls: ServedPeer | None = None  # the peer that serves the tool-call frames
        self._accept = accept
        self._line: ToolCallServerChannel | None = None
        self._limit = limit

    def arrived(self, data: str | bytes) -> None:
        if isinstance(data, bytes):
            self.close_with(1003, "messages must be text frames")
            return
        frame = data.encode()
        if len(frame) > self._limit:
            self.close_with(1009, f"a message has at most {self._limit} bytes")
            return
        self.take(frame)

    def unread(self, frame: bytes, error: RemoteProtocolError) -> None:
        members = members_of(frame) if error.code == INVALID_REQUEST else None
        if members is not None and is_tool_call(members):
            try:
                self._tool_calls().take_call(members)
            except RemoteProtocolError as exc:
                super().unread(frame, exc)
        elif members is None or not _is_aside(members):
            super().unread(frame, error)

    def _tool_calls(self) -> ToolCallServerChannel:
        if self._line is None:
            self._line = ToolCallServerChannel(self, self.context, self.decoder)
            self._calls = self._accept(self._line)
        return self._line

    @property
    def requests_in_progress(self) -> int:
        peers = (self._calls, self.served)
        return sum(peer.requests_in_progress for peer in peers if peer is not None)

    async def end(self, code: int, reason: str, drain: float = 0.0) -> None:
        """Close the channel and its peers; running requests may take `drain` seconds."""
        peers = [peer for peer in (self._calls, self.served) if peer is not None]
        if drain:
            await asyncio.gather(*(peer.finish_requests(drain) for peer in peers))
        self.farewell = code, reason
        for peer in peers:
            await peer.close()


def _is_aside(members: RawMembers) -> bool:
    """Return True for a keep-alive frame of some clients, which needs no response."""
    return not {"jsonrpc", "id", "method"} & members.keys() and "type" in members


class _AsgiSocket:
    """A `WebSocketConnection` on the callables of an ASGI server."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.open = True
        self._receive = receive
        self._send = send

    async def tell(self, event: dict[str, Any]) -> None:
        try:
            await self._send(event)
        # Some servers raise `RuntimeError` if only their side is closed.
        except (OSError, RuntimeError) as exc:
            self.open = False
            raise WebSocketClosed(1006, str(exc)) from exc

    async def receive(self) -> str | bytes:
        event = await self._receive()
        if event["type"] == "websocket.disconnect":
            self.open = False
            raise WebSocketClosed(event.get("code", 1005), event.get("reason") or "")
        text = event.get("text")
        data: str | bytes = event["bytes"] if text is None else text
        return data

    async def send(self, frame: bytes) -> None:
        await self.tell({"type": "websocket.send", "text": frame.decode("utf-8", "replace")})

    async def close(self, code: int, reason: str) -> None:
        if self.open:
            self.open = False
            await self.tell({"type": "websocket.close", "code": code, "reason": _cut(reason)})

    def abort(self) -> None:
        """Do nothing: the ASGI server drops the connection when `serve` returns."""


def _context(scope: Scope, headers: dict[bytes, bytes]) -> TransportContext:
    client = scope.get("client")
    return TransportContext(
        transport_type="websocket",
        headers=HeaderMap(headers),
        path=scope["path"],
        peer_address=client[0] if client else None,
    )


def _cut(reason: str) -> str:
    return reason.encode()[:_REASON].decode("utf-8", "ignore")
