"""One session of the handshake era: a `Channel` whose messages travel in HTTP exchanges."""

import time
from collections.abc import Callable
from typing import Protocol

from msgspec import Raw

from .....errors import ChannelClosed
from .....protocol.envelope import SessionContext, TransportContext
from .....protocol.identity.principal import Principal
from .....protocol.revisions import Revision, find_revision
from .....wire import Failure, Message, Request, RequestId, Success, encode, encode_success
from ....channel import Channel
from .event_store import EventStore
from .event_stream import HIGH_WATER, EventStream
from .streamed_channel import StreamedChannel

__all__ = ["AcceptSession", "HttpSession", "ServedPeer", "StreamlessPost"]


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
    def has_stream(self) -> bool:  # type: ignore[override]
        return self.standalone.carrier is not None

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
