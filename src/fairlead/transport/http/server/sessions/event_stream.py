"""Event streams of HTTP responses, and the connections that carry them.

A stream outlives its connection (handshake era): when the client reconnects with the id of the last
event it received, another connection carries the rest.
"""

import asyncio
from collections.abc import Callable

from .....wire import RequestId
from .....wire.sse import HEARTBEAT, encode_event
from ..asgi import WHOLE_STREAM, HttpCall
from ..http_settings import HttpSettings
from .event_store import EventStore, event_id

__all__ = ["HIGH_WATER", "EventStream", "write_stream"]

HIGH_WATER = 1 << 20  # bytes not yet written to the client above which senders wait
MAX_EARLY = 64  # messages kept for a stream that is not open yet


class EventStream:
    """Messages of one response, added by the session and written by the carrying connection."""

    def __init__(
        self,
        session: str,
        name: str,
        store: EventStore | None,
        owed: set[RequestId] | None = None,
        taken: Callable[[], None] | None = None,
    ) -> None:
        """`owed` are the ids of the requests to answer. The stream is done after the last response.

        `taken` is called when all messages have been taken from the stream.
        """
        self.name = name
        self.owed = owed
        # event numbers and messages that are not taken yet; 0 means that the event has no id
        self.frames: list[tuple[int, bytes]] = []
        self.size = 0
        self.number = 0  # number of the last event
        self.numbered = False  # events have ids, so that the client can resume
        self.chatty = False  # contains messages other than responses
        self.done = False
        self.leaving = False  # the carrier should disconnect, although more messages follow
        self.carrier: object | None = None
        self._session = session
        self._store = store
        self._taken = taken
        self._waiter: asyncio.Future[None] | None = None

    def put(self, frame: bytes, *, answers: RequestId | None = None) -> None:
        """Add a message; `answers` is the id of the request it responds to."""
        if self.numbered:
            self.number += 1
            if self._store is not None:
                self._store.append(self._session, self.name, self.number, frame)
        # Without a carrier a numbered event is in the store, from which the client resumes.
        if self.carrier is not None or not self.numbered:
            self.frames.append((self.number, frame))
            self.size += len(frame)
            if self.carrier is None and len(self.frames) > MAX_EARLY:
                self.size -= len(self.frames.pop(0)[1])
        if answers is None:
            self.chatty = True
        else:
            self.settle(answers)
        self.wake()

    def settle(self, request_id: RequestId) -> None:
        """Mark a request as answered; the stream is done after the last one."""
        if self.owed is not None:
            self.owed.discard(request_id)
            self.done = self.done or not self.owed

    def number_events(self) -> None:
        """Give events ids from now on, so that the client can resume."""
        if self.numbered or self._store is None:
            return
        self.numbered = True
        early, self.frames = self.frames, []
        for _, frame in early:
            self.number += 1
            self._store.append(self._session, self.name, self.number, frame)
            self.frames.append((self.number, frame))

    def take(self) -> list[tuple[int, bytes]]:
        """Return the messages added since the last call."""
        frames, self.frames, self.size = self.frames, [], 0
        if self._taken is not None:
            self._taken()
        return frames

    def attach(self, carrier: object) -> None:
        """Make this connection the only carrier of the stream."""
        self.carrier = carrier
        self.leaving = False
        self.wake()

    def detach(self, carrier: object) -> None:
        """Remove a carrier. Its unwritten messages are lost unless they are in the store."""
        # A newer connection may already have replaced this carrier.
        if self.carrier is carrier:
            self.carrier = None
            self.take()

    def end(self) -> None:
        """Mark the stream as done."""
        self.done = True
        self._taken = None  # refers to the session, which a collection would have to free otherwise
        self.wake()

    def leave(self) -> None:
        """Make the carrier disconnect; the client resumes the stream later."""
        self.leaving = True
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Wait for the next change. Only one carrier may wait at a time."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


async def write_stream(
    call: HttpCall,
    stream: EventStream,
    settings: HttpSettings,
    *,
    prime: bool = False,
    replay: list[tuple[int, bytes]] | None = None,
    opening: bytes = b"",
) -> None:
    """Write a stream into a response until the stream is done or detached, or the client
    disconnects.
    """
    me = stream.carrier
    if not (stream.frames or stream.done):
        # Most tools respond immediately; the whole stream is then sent in one write.
        await asyncio.sleep(0)
    first = opening + _events(stream, replay or [])
    if prime and stream.numbered:
        first = _priming(stream, settings.retry) + first
    if stream.done and stream.carrier is me:
        first += _events(stream, stream.take())
        stream.detach(me)
        if not call.gone:
            await call.answer(200, first, *WHOLE_STREAM)
        return
    await call.open_stream()
    if first:
        await call.write(first)

    async def beat() -> None:
        await call.write(HEARTBEAT)

    call.watch(stream.wake, beat, settings.heartbeat)
    try:
        # Compared by identity: `attach` may have moved the stream to another connection.
        while not call.gone and stream.carrier is me:
            if stream.frames:
                await call.write(_events(stream, stream.take()))
            elif stream.done or stream.leaving:
                break
            else:
                await stream.wait()
    finally:
        call.unwatch()
        stream.detach(me)
    if not call.gone:
        await call.end()


def _priming(stream: EventStream, retry: float) -> bytes:
    """Return an event with an id but no data, so that a client can resume before any message."""
    # The number before the first unwritten event, because the priming event precedes it.
    number = stream.frames[0][0] - 1 if stream.frames else stream.number
    return encode_event(b"", id=event_id(stream.name, number), retry=round(retry * 1000))


def _events(stream: EventStream, frames: list[tuple[int, bytes]]) -> bytes:
    if not stream.numbered:
        return b"".join([encode_event(frame) for _, frame in frames])
    name = stream.name
    return b"".join([encode_event(frame, id=event_id(name, number)) for number, frame in frames])
