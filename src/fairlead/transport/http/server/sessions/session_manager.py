"""Sessions of the handshake era: each is a `Channel` whose messages travel in HTTP exchanges."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec import Raw

from .....errors import ChannelClosed
from .....limits import SESSIONS_PER_CLIENT
from .....protocol.envelope import SessionContext, TransportContext
from .....protocol.identity.client_key import client_key
from .....protocol.identity.principal import Principal
from .....protocol.revisions import Revision, find_revision
from .....wire import Failure, Message, Request, RequestId, Success, encode, encode_success
from ....channel import Channel
from ....client_shares import ClientShares, NoShareLeft
from ..asgi import HttpCall
from ..settings import HttpSettings
from .event_store import EventStore, MemoryEventStore
from .event_stream import HIGH_WATER, EventStream
from .session_restore import SessionRestorer
from .streamed_channel import StreamedChannel

__all__ = [
    "AcceptSession",
    "HttpSession",
    "ServedPeer",
    "SessionManager",
    "StreamlessPost",
    "TooManySessions",
]

log = logging.getLogger("fairlead.transport")


class ServedPeer(Protocol):
    """Whoever talks on a channel, as far as we have to know it."""

    @property
    def session(self) -> SessionContext: ...

    async def close(self) -> None: ...


AcceptSession = Callable[
    [Channel, Principal], ServedPeer
]  # the channel, and who is at its other end


class StreamlessPost(Protocol):
    """A POST that waits for nothing but its answer, and needs no stream for that."""

    def answered(self, frame: bytes | None) -> None:
        """Here it is; None if there is nothing to say, because the request was cancelled."""

    def switch_to_stream(self, stream: EventStream) -> None:
        """Something else comes before the answer, so that it is a stream from now on."""


class TooManySessions(Exception):
    """A client has its share of sessions, and all of them are in use."""


class HttpSession(StreamedChannel):
    """One client's session: what it sends comes in POSTs, what it hears leaves in their answers."""

    id: str

    def __init__(
        self, session_id: str, context: TransportContext, principal: Principal, store: EventStore
    ) -> None:
        super().__init__(context)
        self.id = session_id
        self.principal = principal
        self.client = ""  # whose share it counts for
        self.revision: Revision | None = None  # once `initialize` has been answered
        self.key: str | None = None  # under which it is kept, where sessions outlive a process
        self.used = time.monotonic()
        self.served: ServedPeer | None = None
        self.standalone = EventStream(session_id, "g", store, taken=self._taken)
        self._store = store
        self._posts: dict[RequestId, EventStream] = {}
        self._direct: dict[
            RequestId, StreamlessPost
        ] = {}  # the same, where no stream is needed so far
        self._resumable: dict[str, EventStream] = {}  # streams with ids that are not done
        self._queued = 0  # no fewer bytes than wait in all streams together
        self._streams = 0

    # Channel

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        if self.over:
            raise ChannelClosed(delivered=False)
        if isinstance(message, Success | Failure):
            if message.id in self._direct:
                self._direct.pop(message.id).answered(encode(message))
                return
            stream = self._posts.pop(message.id, None) if message.id is not None else None
            if stream is not None:
                frame = encode(message)
                self._queued += len(frame)
                stream.put(frame, answers=message.id)
                self._finished(stream)
            return
        stream = self._stream_of(reply_to) if reply_to is not None else None
        frame = encode(message)
        self._queued += len(frame)
        (stream or self.standalone).put(frame)

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        direct = self._direct.pop(request_id, None)
        if direct is not None:
            self.used = time.monotonic()
            direct.answered(encode_success(request_id, result))
            return
        stream = self._posts.pop(request_id, None)
        if stream is not None:
            frame = encode_success(request_id, result)
            self._queued += len(frame)
            stream.put(frame, answers=request_id)
            self._finished(stream)

    @property
    def congested(self) -> bool:
        if self._queued <= HIGH_WATER:
            return False
        streams = (*self._posts.values(), self.standalone)
        self._queued = sum(stream.size for stream in streams)  # most has been taken meanwhile
        return any(s.size > HIGH_WATER and s.carrier is not None for s in streams)

    def finish(self, request_id: RequestId) -> None:
        direct = self._direct.pop(request_id, None)
        if direct is not None:
            direct.answered(None)
            return
        stream = self._posts.pop(request_id, None)
        if stream is not None:
            stream.settle(request_id)
            stream.wake()
            self._finished(stream)

    def detach(self, request_id: RequestId) -> None:
        """Hang up on the client of a request; it comes back for the answer."""
        stream = self._stream_of(request_id)
        if stream is not None:
            stream.leave()

    async def close(self) -> None:
        self._end()
        for request_id in list(self._direct):
            self.use_stream(request_id)
        for stream in (*self._posts.values(), *self._resumable.values(), self.standalone):
            stream.end()

    # What comes in

    def open_stream(self, requests: list[Request]) -> EventStream:
        """The stream that answers these requests of one POST."""
        return self._open_stream({request.id for request in requests})

    def _open_stream(self, owed: set[RequestId]) -> EventStream:
        self._streams += 1
        stream = EventStream(self.id, f"p{self._streams}", self._store, owed, self._taken)
        for request_id in owed:
            self._posts[request_id] = stream
        return stream

    def expect(self, request_id: RequestId, direct: StreamlessPost) -> None:
        """The same for one request that nothing but an answer is expected to."""
        self._direct[request_id] = direct

    def use_stream(self, request_id: RequestId) -> None:
        """Such a request has to have a stream after all."""
        direct = self._direct.pop(request_id, None)
        if direct is not None:
            direct.switch_to_stream(self._open_stream({request_id}))

    def settle_revision(self) -> bool:
        """`initialize` was answered: with which revision? False if it was refused."""
        if self.served is not None:
            self.revision = find_revision(self.served.session.protocol_version or "")
        return self.revision is not None

    def asked(self, request_id: RequestId) -> bool:
        """Whether a request of that id is under way."""
        return request_id in self._posts or request_id in self._direct

    def keep(self, stream: EventStream) -> None:
        """The client knows an id of this stream, so it may come back."""
        stream.number_events()
        if not stream.done:
            self._resumable[stream.name] = stream

    def find(self, name: str) -> EventStream | None:
        """A stream that is still going on."""
        return self.standalone if name == "g" else self._resumable.get(name)

    @property
    def busy(self) -> bool:
        """Whether something is under way, or somebody listens."""
        return bool(self._posts or self._direct) or self.standalone.carrier is not None

    def _stream_of(self, request_id: RequestId) -> EventStream | None:
        if request_id in self._direct:
            self.use_stream(request_id)
        return self._posts.get(request_id)

    def _finished(self, stream: EventStream) -> None:
        self.used = time.monotonic()  # a call may have lasted longer than a session may be idle
        if stream.done:
            self._resumable.pop(stream.name, None)


class SessionManager:
    """All sessions of an endpoint, within bounds."""

    def __init__(self, settings: HttpSettings, accept: AcceptSession) -> None:
        self._settings = settings
        self._accept = accept
        self._store: EventStore = settings.event_store or MemoryEventStore(owner_of=self._client_of)
        self._sessions: dict[str, HttpSession] = {}
        self._shares: ClientShares[HttpSession] = ClientShares(
            settings.max_sessions,
            settings.max_sessions_per_client,
            SESSIONS_PER_CLIENT,
            is_idle=lambda session: not session.busy,
            used=lambda session: session.used,
        )
        self._ending: set[asyncio.Task[None]] = set()
        self.restorer: SessionRestorer | None = None
        self._touched = 0.0  # when the store last heard which of them are in use
        if settings.session_store is not None:
            store, idle = settings.session_store, settings.session_idle
            self.restorer = SessionRestorer(store, idle, self._made, self._add, self.end)
        self._sweep: asyncio.TimerHandle | None = None
        self.closing = False

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, context: TransportContext, principal: Principal) -> HttpSession:
        """A new session, with its server attached.

        Raises:
            TooManySessions: The client has its share, and all of it is in use.
        """
        session = self._made(context, principal, secrets.token_urlsafe(24))
        self._add(session)
        return session

    def _made(
        self, context: TransportContext, principal: Principal, session_id: str
    ) -> HttpSession:
        client = client_key(principal, context.peer_address)
        try:
            victim = self._shares.make_room(client)
        except NoShareLeft:
            raise TooManySessions from None
        if victim is not None:
            log.info("session %s… ends: its client has too many", victim.id[:6])
            self._end_soon(victim)
        session = HttpSession(session_id, context, principal, self._store)
        session.client = client
        session.served = self._accept(session, principal)
        self._shares.add(client, session)
        return session

    def _client_of(self, session_id: str) -> str:
        session = self._sessions.get(session_id)
        return "" if session is None else session.client

    def _add(self, session: HttpSession) -> None:
        self._sessions[session.id] = session
        if self._sweep is None and self._settings.session_idle:
            self._schedule()

    def get(self, session_id: str, principal: Principal) -> HttpSession | None:
        """A session by its id, for whom it was made."""
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal or session.over:
            return None
        session.used = time.monotonic()
        self._shares.touch(session)
        return session

    async def find(
        self, call: HttpCall, session_id: bytes, principal: Principal
    ) -> HttpSession | None:
        """Return the session that a request names, restored if necessary."""
        name = session_id.decode("latin-1")
        found = self.get(name, principal)
        if found is None and self.restorer is not None and not self.closing:
            found = await self.restore_session(name, call.context, principal)
        return found

    async def after(
        self, session: HttpSession, stream: str, number: int
    ) -> list[tuple[int, bytes]] | None:
        """What a client has missed on a stream; None if nobody knows."""
        return await self._store.after(session.id, stream, number)

    async def restore_session(
        self, session_id: str, context: TransportContext, principal: Principal
    ) -> HttpSession | None:
        """A session that `get` does not know, if it can be taken up again."""
        if self.restorer is None or session_id in self._sessions:
            return None
        try:
            return await self.restorer.restore_session(session_id, context, principal)
        except TooManySessions:
            log.warning("a session cannot be taken up again: there are too many")
            return None

    async def end(self, session: HttpSession, for_good: bool = True) -> None:
        """End a session: what is under way in it is cancelled."""
        self._remove(session)
        self._store.forget(session.id)
        if for_good and self.restorer is not None and session.key is not None:
            await self.restorer.forget(session.key)
        if session.served is not None:
            await session.served.close()

    async def close(self) -> None:
        """End them all; those that are kept go on in the next process."""
        self.closing = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self.restorer is not None:
            await self.restorer.close()
        await self._touch()
        for session in list(self._sessions.values()):
            await self.end(session, for_good=session.over)
        if self._ending:
            await asyncio.wait(self._ending)

    def _end_soon(self, session: HttpSession) -> None:
        self._remove(session)
        self._begin(self.end(session))

    def _remove(self, session: HttpSession) -> None:
        self._sessions.pop(session.id, None)
        self._shares.discard(session)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _schedule(self) -> None:
        wait = max(self._settings.session_idle / 4, 0.05)
        self._sweep = asyncio.get_running_loop().call_later(wait, self._expire)

    def _expire(self) -> None:
        oldest = time.monotonic() - self._settings.session_idle
        for session in list(self._sessions.values()):
            if session.used <= oldest and not session.busy:
                log.debug("session %s… was idle for too long", session.id[:6])
                self._end_soon(session)
        if self.restorer is not None:
            self._begin(self._touch())
        if self._sessions:
            self._schedule()
        else:
            self._sweep = None

    async def _touch(self) -> None:
        """What was in use here since the last time is not too old for the next process."""
        if self.restorer is not None:
            since, self._touched = self._touched, time.monotonic()
            used = [one for one in self._sessions.values() if one.busy or one.used >= since]
            await self.restorer.touch([one.key for one in used if one.key is not None])
