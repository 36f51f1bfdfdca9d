"""Messages of one HTTP response before a connection carries them."""

import asyncio

from fairlead.transport.http.server.sessions.event_store import MemoryEventStore
from fairlead.transport.http.server.sessions.event_stream import MAX_EARLY, EventStream


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


def test_a_stream_without_requests_ends_when_it_is_told() -> None:
    stream = EventStream("s", "g", None)
    stream.put(b"x", answers=1)
    assert (stream.done, stream.chatty) == (False, False)
    stream.end()
    assert stream.done


def test_frames_are_taken_once_and_their_size_is_known() -> None:
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


async def test_a_waiting_carrier_wakes_up_for_messages_and_the_end() -> None:
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
