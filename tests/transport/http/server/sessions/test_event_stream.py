"""Event streams with and without an attached connection."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.transport.http.server.http_settings import HttpSettings
from fairlead.transport.http.server.sessions.event_store import MemoryEventStore
from fairlead.transport.http.server.sessions.event_stream import EventStream, write_stream
from fairlead.wire.sse import HEARTBEAT

MAX_EARLY = 64


def test_a_stream_is_done_when_every_request_is_answered() -> None:
    stream = EventStream("s", "p1", None, {1, 2})
    stream.put(b"note")
    assert (stream.done, stream.chatty) == (False, True)
    stream.put(b"one", answers=1)
    stream.put(b"other", answers=3)
    assert not stream.done
    stream.put(b"two", answers=2)
    assert stream.done
    assert [frame for _, frame in stream.take()] == [b"note", b"one", b"other", b"two"]


def test_a_stream_without_requests_is_done_after_end() -> None:
    stream = EventStream("s", "g", None)
    stream.put(b"x", answers=1)
    assert (stream.done, stream.chatty) == (False, False)
    stream.end()
    assert stream.done


def test_frames_are_taken_once_and_their_size_is_counted() -> None:
    emptied: list[int] = []
    stream = EventStream("s", "g", None, taken=lambda: emptied.append(1))
    stream.put(b"12")
    stream.put(b"345")
    assert stream.size == 5
    assert stream.take() == [(0, b"12"), (0, b"345")]
    assert (stream.size, stream.take(), emptied) == (0, [], [1, 1])


def test_a_stream_without_a_connection_keeps_the_newest_messages() -> None:
    stream = EventStream("s", "g", None)
    for number in range(MAX_EARLY + 2):
        stream.put(b"%03d" % number)
    assert stream.size == 3 * MAX_EARLY
    assert stream.take()[0] == (0, b"002")
    stream.attach(carrier := object())
    for number in range(MAX_EARLY + 2):
        stream.put(b"%03d" % number)
    assert len(stream.frames) == MAX_EARLY + 2
    stream.detach(carrier)


async def test_numbered_events_are_stored_for_clients_that_resume() -> None:
    store = MemoryEventStore()
    stream = EventStream("s", "p1", store)
    stream.attach(carrier := object())
    stream.put(b"early")
    stream.number_events()
    stream.number_events()
    stream.put(b"later")
    assert stream.take() == [(1, b"early"), (2, b"later")]
    stream.detach(object())
    stream.put(b"carried")
    stream.detach(carrier)
    stream.put(b"missed")
    assert stream.frames == []
    everything = [(1, b"early"), (2, b"later"), (3, b"carried"), (4, b"missed")]
    assert await store.after("s", "p1", 0) == everything


def test_events_have_no_numbers_without_a_store() -> None:
    stream = EventStream("s", "p1", None)
    stream.number_events()
    assert not stream.numbered


async def test_waiting_for_a_stream_ends_with_a_message_its_end_or_a_disconnect() -> None:
    stream = EventStream("s", "p1", None)
    for happens in (lambda: stream.put(b"x"), stream.end, stream.leave, stream.wake):
        waiting = asyncio.create_task(stream.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        happens()
        happens()
        async with asyncio.timeout(5):
            await waiting
    assert stream.leaving
    stream.attach(object())
    assert not stream.leaving


# Writing a stream into a response


class RecordingCall:
    """A fake HTTP call that records which methods were called."""

    def __init__(self) -> None:
        self.gone = False
        self.done: list[Any] = []
        self.left: Callable[[], None] = lambda: None
        self.beat: Any = None
        self.every = 0.0

    async def answer(self, status: int, body: bytes, kind: bytes, headers: Any) -> None:
        self.done.append(("answer", status, body, kind, headers))

    async def open_stream(self) -> None:
        self.done.append("open")

    async def write(self, chunk: bytes) -> None:
        self.done.append(chunk)

    async def end(self) -> None:
        self.done.append("end")

    def watch(self, left: Callable[[], None], beat: Any, every: float) -> None:
        self.done.append("watch")
        self.left, self.beat, self.every = left, beat, every

    def unwatch(self) -> None:
        self.done.append("unwatch")

    def leave(self) -> None:
        """Simulate a disconnect of the client."""
        self.gone = True
        self.left()


def carried(store: MemoryEventStore | None = None) -> tuple[EventStream, Any]:
    stream, call = EventStream("s", "p1", store, {1}), RecordingCall()
    stream.attach(call)
    return stream, call


def start(call: Any, stream: EventStream, **options: Any) -> "asyncio.Task[None]":
    settings = HttpSettings(retry=1.5, heartbeat=options.pop("heartbeat", 15.0))
    return asyncio.ensure_future(write_stream(call, stream, settings, **options))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


KIND = b"text/event-stream"
HEADERS = ((b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no"))


@pytest.mark.parametrize("when", ["before", "at once"])
async def test_a_stream_that_is_already_done_is_sent_as_one_response(when: str) -> None:
    stream, call = carried()
    if when == "before":
        stream.put(b"a")
        stream.put(b"b", answers=1)
    writing = start(call, stream, opening=b": hello\n\n")
    if when == "at once":
        asyncio.get_running_loop().call_soon(stream.put, b"a")
        asyncio.get_running_loop().call_soon(lambda: stream.put(b"b", answers=1))
    await writing
    said = b": hello\n\ndata: a\n\ndata: b\n\n"
    assert call.done == [("answer", 200, said, KIND, HEADERS)]
    assert (stream.carrier, stream.frames) == (None, [])


@pytest.mark.parametrize(("prime", "numbered"), [(True, True), (True, False), (False, True)])
async def test_a_numbered_stream_begins_with_a_priming_event(prime: bool, numbered: bool) -> None:
    stream, call = carried(MemoryEventStore())
    stream.put(b"a")
    if numbered:
        stream.number_events()
    stream.put(b"b", answers=1)
    await start(call, stream, prime=prime)
    first = b"id: p1_0\nretry: 1500\ndata: \n\n" if prime and numbered else b""
    ids = (b"id: p1_1\n", b"id: p1_2\n") if numbered else (b"", b"")
    said = first + ids[0] + b"data: a\n\n" + ids[1] + b"data: b\n\n"
    ((_, _, body, _, _),) = call.done
    assert body == said


async def test_the_priming_event_of_a_continued_stream_has_the_last_id() -> None:
    stream, call = carried(MemoryEventStore())
    stream.number_events()
    stream.put(b"a")
    stream.put(b"b")
    stream.take()
    writing = start(call, stream, prime=True)
    await turns()
    assert call.done[0] == "open"
    assert b"id: p1_2\n" in call.done[1]
    stream.put(b"c")
    await turns()
    assert b"id: p1_3\n" in call.done[-1]
    stream.end()
    await writing


async def test_missed_events_are_written_before_new_ones() -> None:
    stream, call = carried(MemoryEventStore())
    stream.number_events()
    writing = start(call, stream, replay=[(4, b"x"), (5, b"y")])
    await turns()
    opened, written, watched = call.done
    assert (opened, watched) == ("open", "watch")
    assert [line for line in written.split(b"\n") if line] == [
        *(b"id: p1_4", b"data: x", b"id: p1_5", b"data: y"),
    ]
    stream.end()
    await writing


async def test_messages_are_written_to_the_open_response_as_they_arrive() -> None:
    stream, call = carried()
    writing = start(call, stream, heartbeat=7.0)
    await turns()
    assert (call.done, call.every) == (["open", "watch"], 7.0)
    stream.put(b"a")
    stream.put(b"b")
    await turns()
    await call.beat()
    stream.put(b"c", answers=1)
    await writing
    assert call.done == [
        *("open", "watch", b"data: a\n\ndata: b\n\n", HEARTBEAT, b"data: c\n\n"),
        *("unwatch", "end"),
    ]
    assert stream.carrier is None


@pytest.mark.parametrize(
    ("how", "ended"), [("leave", True), ("end", True), ("gone", False), ("another", True)]
)
async def test_writing_stops_when_the_stream_ends_or_is_detached(how: str, ended: bool) -> None:
    stream, call = carried()
    writing = start(call, stream)
    await turns()
    match how:
        case "leave":
            stream.leave()
        case "end":
            stream.end()
        case "gone":
            call.leave()
        case _:
            stream.attach("another")
    async with asyncio.timeout(5):
        await writing
    assert call.done == ["open", "watch", "unwatch", *(["end"] if ended else [])]
    assert stream.carrier == ("another" if how == "another" else None)


async def test_queued_messages_are_written_before_the_connection_ends() -> None:
    stream, call = carried()
    writing = start(call, stream)
    await turns()
    stream.put(b"a")
    stream.leave()
    await writing
    assert call.done[2:] == [b"data: a\n\n", "unwatch", "end"]


async def test_a_done_stream_is_not_written_after_a_disconnect() -> None:
    stream, call = carried()
    stream.put(b"a", answers=1)
    call.gone = True
    await start(call, stream)
    assert (call.done, stream.carrier) == ([], None)


async def test_a_failed_write_detaches_the_stream() -> None:
    stream, call = carried()
    writing = start(call, stream)
    await turns()

    async def fails(chunk: bytes) -> None:
        raise OSError("broken")

    call.write = fails
    stream.put(b"a")
    with pytest.raises(OSError, match="broken"):
        await writing
    assert (call.done, stream.carrier) == (["open", "watch", "unwatch"], None)


def test_detaching_another_connection_has_no_effect() -> None:
    stream, _ = carried()
    stream.put(b"a")
    stream.detach(object())
    assert (len(stream.frames), stream.size) == (1, 1)
