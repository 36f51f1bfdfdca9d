"""Sessions of the handshake era as channels whose messages are carried by HTTP exchanges."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Raw

from .....errors import ChannelClosed
from .....protocol.caller import Principal
from .....protocol.envelope import SessionContext, TransportContext
from .....protocol.revisions import Revision, find_revision
from .....wire import Failure, Message, RequestId, Success, encode, encode_success, failure
from .....wire.error_codes import REQUEST_CANCELLED
from ....channel import Channel, Incoming
from .event_store import EventStore, post_stream_name
from .event_stream import HIGH_WATER, EventStream
from .streamed_channel import StreamedChannel

__all__ = ["AcceptSession", "HttpSession", "ServedPeer", "StreamlessPost"]


class ServedPeer(Protocol):
    """The peer that serves the channel of a session."""

    @property
    def session(self) -> SessionContext: ...

    @property
    def requests_in_progress(self) -> int:
        """The number of requests that are not answered yet, without those that only listen."""
        ...

    def use_principal(self, principal: Principal) -> None:
        """Set the principal of the following messages; it has the scopes of their token."""

    async def finish_requests(self, seconds: float) -> None:
        """Wait up to `seconds` until the running requests are answered."""

    async def close(self) -> None: ...


# Starts to serve a channel for a principal.
AcceptSession = Callable[[Channel, Principal], ServedPeer]


class StreamlessPost(Protocol):
    """A POST that waits for its response and has no event stream yet."""

    @property
    def scopes(self) -> Sequence[str]:
        """The scopes that its request requires."""
        ...

    def answered(self, frame: bytes) -> None:
        """Send the response."""

    def switch_to_stream(self, stream: EventStream) -> None:
        """Use a stream from now on, because another message precedes the response."""


class HttpSession(StreamedChannel):
    """Session of one client: messages arrive in POSTs and leave in their responses."""

    id: str

    def __init__(
        self, session_id: str, context: TransportContext, principal: Principal, store: EventStore
    ) -> None:
        super().__init__(context)
        self.id = session_id
        self.principal = principal
        self.client = ""  # the client to whose limit this session counts
        self.revision: Revision | None = None  # set once `initialize` is answered
        self.key: str | None = None  # key in the session store, if there is one
        self.used = time.monotonic()
        self.served: ServedPeer | None = None
        self.standalone = EventStream(session_id, "g", store, taken=self._taken)
        self._store = store
        self._posts: dict[RequestId, EventStream] = {}
        self._direct: dict[RequestId, StreamlessPost] = {}  # requests that have no stream yet
        self._resumable: dict[str, EventStream] = {}  # unfinished streams with event ids
        self._queued = 0  # upper bound of the bytes waiting in all streams
        self._streams = 0

    # Methods of Channel

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        if self.over:
            raise ChannelClosed(delivered=False)
        if isinstance(message, Success | Failure):
            if message.id is not None:
                self._respond(message.id, encode(message))
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
        else:
            self._respond(request_id, encode_success(request_id, result))

    @property
    def has_stream(self) -> bool:  # type: ignore[override]
        return self.standalone.carrier is not None

    @property
    def idle_since(self) -> float | None:  # type: ignore[override]
        return None if self.busy else self.used

    def _taken(self) -> None:
        """Record that the listening client has read messages, or has disconnected."""
        self.used = time.monotonic()
        self._drained.wake()

    @property
    def congested(self) -> bool:
        if self._queued <= HIGH_WATER:
            return False
        streams = (*self._posts.values(), self.standalone)
        # Counted only above the limit: `_queued` is not reduced when a stream is written.
        self._queued = sum(stream.size for stream in streams)
        # A stream without a carrier does not count: its client may never resume it.
        return any(s.size > HIGH_WATER and s.carrier is not None for s in streams)

    def finish(self, request_id: RequestId) -> None:
        # The response to a POST with a request must contain JSON or events (2025-11-25
        # basic/transports#sending-messages-to-the-server). The official Python SDK's server sends
        # the same event; its client fails if it receives JSON while it closes.
        stream = self._stream_of(request_id)
        if stream is not None:
            stream.chatty = True
            error = failure(request_id, REQUEST_CANCELLED, "Request cancelled")
            self._respond(request_id, encode(error))

    def detach(self, request_id: RequestId) -> None:
        """Disconnect the client of a request; it resumes the stream later to get the response."""
        stream = self._stream_of(request_id)
        if stream is not None:
            stream.leave()

    async def close(self) -> None:
        self._end()
        for request_id in list(self._direct):
            self.use_stream(request_id)
        for stream in (*self._posts.values(), *self._resumable.values(), self.standalone):
            stream.end()

    # Receiving

    def receive(self, message: Incoming, principal: Principal) -> None:
        """Deliver a message on behalf of this principal, which owns the session.

        The principal of each message has the scopes and the expiry of its own token.
        """
        if principal is not self.principal and self.served is not None:
            self.principal = principal
            self.served.use_principal(principal)
        self.hand_over(message)

    def open_stream(self, owed: set[RequestId], scopes: Sequence[str] = ()) -> EventStream:
        """Create the stream that answers the requests of one POST, which require these scopes."""
        self._streams += 1
        name = post_stream_name(self._streams, scopes)
        stream = EventStream(self.id, name, self._store, owed, self._drained.wake)
        for request_id in owed:
            self._posts[request_id] = stream
        return stream

    def expect(self, request_id: RequestId, direct: StreamlessPost) -> None:
        """Register a request that is expected to get a response and no other message."""
        self._direct[request_id] = direct

    def use_stream(self, request_id: RequestId) -> None:
        """Switch a request that was registered with `expect` to an event stream."""
        direct = self._direct.pop(request_id, None)
        if direct is not None:
            direct.switch_to_stream(self.open_stream({request_id}, direct.scopes))

    def settle_revision(self) -> bool:
        """Set the revision from the response to `initialize`; return False if it was refused."""
        if self.served is not None:
            self.revision = find_revision(self.served.session.protocol_version or "")
        return self.revision is not None

    def asked(self, request_id: RequestId) -> bool:
        """Return True if a request with that id is in progress."""
        return request_id in self._posts or request_id in self._direct

    def keep(self, stream: EventStream) -> None:
        """Number the events of a stream and keep it, so that the client can resume it."""
        stream.number_events()
        if not stream.done:
            self._resumable[stream.name] = stream

    def find(self, name: str) -> EventStream | None:
        """Return an unfinished stream by its name."""
        return self.standalone if name == "g" else self._resumable.get(name)

    @property
    def has_requests(self) -> bool:
        """True if a request is in progress."""
        return bool(self._posts or self._direct)

    @property
    def busy(self) -> bool:
        """True if a request is in progress or the client is listening."""
        return self.has_requests or self.standalone.carrier is not None

    def _stream_of(self, request_id: RequestId) -> EventStream | None:
        if request_id in self._direct:
            self.use_stream(request_id)
        return self._posts.get(request_id)

    def _respond(self, request_id: RequestId, frame: bytes) -> None:
        # A call may last longer than the idle timeout, which starts at its end.
        self.used = time.monotonic()
        direct = self._direct.pop(request_id, None)
        if direct is not None:
            direct.answered(frame)
            return
        stream = self._posts.pop(request_id, None)
        if stream is None:
            return
        self._queued += len(frame)
        stream.put(frame, answers=request_id)
        if stream.done:
            self._resumable.pop(stream.name, None)
