"""Server end of HTTP+SSE (revision 2024-11-05): one event stream to the client, POSTs from it.

The stream is the session: its first event names the URL for POSTs, and the session ends with it.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from urllib.parse import parse_qs

from msgspec import Raw

from ....errors import ChannelClosed, RemoteProtocolError
from ....limits import SESSIONS_PER_CLIENT
from ....protocol.caller import Principal
from ....protocol.envelope import TransportContext
from ....protocol.identity.client_key import client_key
from ....wire import Batch, Decoder, Message, Request, RequestId, encode, encode_success, failure
from ....wire.sse import encode_event
from ...channel import Incoming
from ...client_shares import ClientShares, NoShareLeft
from .asgi import AsgiCall, BodyTooLarge, has_json
from .http_settings import HttpSettings
from .refusals import send_rejection
from .request_guard import RequestRefusal
from .sessions.event_stream import HIGH_WATER, EventStream, write_stream
from .sessions.http_session import AcceptSession, ServedPeer
from .sessions.streamed_channel import StreamedChannel
from .token_expiry import expiring

__all__ = ["MESSAGES", "LegacySse"]

MESSAGES = "/messages"
MAX_UNREAD = 16 << 20  # bytes of unread messages above which requests are refused

log = logging.getLogger("fairlead.transport")


class SseSession(StreamedChannel):
    """Channel of one HTTP+SSE session, which sends all messages in one event stream."""

    id: str

    def __init__(self, context: TransportContext, principal: Principal) -> None:
        super().__init__(context)
        self.id = secrets.token_urlsafe(24)
        self.principal = principal
        self.stream = EventStream(self.id, "s", None, taken=self._drained.wake)
        self.served: ServedPeer | None = None

    def receive(self, message: Incoming, principal: Principal) -> None:
        if principal is not self.principal and self.served is not None:
            self.principal = principal
            self.served.use_principal(principal)
        self.hand_over(message)

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        self._put(encode(message))

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        self._put(encode_success(request_id, result))

    def _put(self, frame: bytes) -> None:
        if self.over:
            raise ChannelClosed(delivered=False)
        self.stream.put(frame)

    @property
    def congested(self) -> bool:
        return self.stream.size > HIGH_WATER

    async def close(self) -> None:
        self._end()
        self.stream.end()


class LegacySse:
    """Handler of the two HTTP+SSE paths; requests are already authenticated."""

    def __init__(
        self,
        settings: HttpSettings,
        accept: AcceptSession,
        refuse_scopes: Callable[[Principal, Message | Batch, str], RequestRefusal | None],
    ) -> None:
        """`refuse_scopes` returns a refusal if a message's token lacks required scopes."""
        self._settings = settings
        self._refuse_scopes = refuse_scopes
        self._accept = accept
        self._sessions: dict[str, SseSession] = {}
        self._shares: ClientShares[SseSession] = ClientShares(
            settings.max_sessions, settings.max_sessions_per_client, SESSIONS_PER_CLIENT
        )
        self._decoder = Decoder()
        self.draining = False  # no new sessions are opened

    @property
    def requests_in_progress(self) -> int:
        """The number of requests in all sessions that are not answered yet."""
        peers = [one.served for one in self._sessions.values()]
        return sum(peer.requests_in_progress for peer in peers if peer is not None)

    async def close(self, drain: float = 0.0) -> None:
        """Terminate all sessions; running requests may take `drain` seconds."""
        await asyncio.gather(*(self._end(one, drain) for one in list(self._sessions.values())))

    async def listen(self, call: AsgiCall, principal: Principal) -> None:
        """Open a session and write its event stream until the client disconnects."""
        if call.method != "GET":
            await call.send_text(405, "use GET to open the stream", [(b"allow", b"GET")])
            return
        if self.draining:
            await call.send_later("the server is shutting down")
            return
        client = client_key(principal, call.client)
        try:
            victim = self._shares.make_room(client)
        except NoShareLeft:
            await call.send_later("too many sessions; try again later")
            return
        session = SseSession(call.context, principal)
        self._sessions[session.id] = session
        # Registered before the next `await`, so that concurrent clients cannot exceed the limit.
        self._shares.add(client, session)
        try:
            if victim is not None:
                await self._end(victim)
            session.stream.attach(call)
            session.served = self._accept(session, principal)
            where = f"{call.scope.get('root_path', '')}{MESSAGES}?session_id={session.id}"
            opening = encode_event(where.encode(), event="endpoint")
            # The stream is the session, so it lasts as long as the newest token of its client.
            with expiring(lambda: session.principal, session.stream.end):
                await write_stream(call, session.stream, self._settings, opening=opening)
        finally:
            await self._end(session)

    async def post(self, call: AsgiCall, principal: Principal) -> None:
        """Receive a message from a client with an open stream."""
        if call.method != "POST":
            await call.send_text(405, "use POST to send messages", [(b"allow", b"POST")])
            return
        if not has_json(call.headers):
            await call.send_text(415, "Content-Type must be application/json")
            return
        query = parse_qs(call.scope.get("query_string", b"").decode("latin-1"))
        session = self._sessions.get((query.get("session_id") or [""])[0])
        if session is None or session.principal != principal:
            await call.send_text(
                404, f"unknown session: open one with GET {self._settings.sse_path}"
            )
            return
        try:
            message = self._decoder.decode(await call.body(self._settings.max_body))
        except BodyTooLarge:
            await call.send_text(413, f"a message has at most {self._settings.max_body} bytes")
            return
        except RemoteProtocolError as exc:
            await call.answer(400, encode(failure(exc.request_id, exc.code, str(exc))))
            return
        refusal = self._refuse_scopes(principal, message, MESSAGES)
        if refusal is not None:
            await send_rejection(call, refusal)
            return
        items = message.items if isinstance(message, Batch) else (message,)
        # Notifications and responses are accepted: they do not add to the unread stream.
        if session.stream.size > MAX_UNREAD and any(isinstance(item, Request) for item in items):
            await call.send_later("too much unread data: read the stream first")
            return
        await session.take_all(items, principal)
        await call.answer(202, b"Accepted", b"text/plain")

    async def _end(self, session: SseSession, drain: float = 0.0) -> None:
        if drain and session.served is not None:
            await session.served.finish_requests(drain)
        self._shares.discard(session)
        if self._sessions.pop(session.id, None) is not None and session.served is not None:
            await session.served.close()
