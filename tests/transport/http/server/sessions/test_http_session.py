"""An HTTP session of the handshake era, and the response that each message is sent in."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import ChannelClosed
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.envelope import SessionContext, SessionState, TransportContext
from fairlead.protocol.revisions import Revision
from fairlead.transport.http.server.sessions.event_store import MemoryEventStore
from fairlead.transport.http.server.sessions.event_stream import HIGH_WATER, EventStream
from fairlead.transport.http.server.sessions.http_session import HttpSession
from fairlead.wire import Notification, Success, encode, failure
from tests.support.virtual_time import VirtualTime

NOTE = Notification("notifications/x")


class Direct:
    """A stand-in for a POST that waits only for its response."""

    scopes = ()

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.streams: list[EventStream] = []

    def answered(self, frame: bytes) -> None:
        self.frames.append(frame)

    def switch_to_stream(self, stream: EventStream) -> None:
        self.streams.append(stream)


class Served:
    """A stand-in for a server that has negotiated a protocol version."""

    def __init__(self, version: str | None) -> None:
        self.session = SessionContext(state=SessionState.ACTIVE, protocol_version=version)
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


def session() -> HttpSession:
    context = TransportContext(transport_type="http")
    return HttpSession("s", context, ANONYMOUS, MemoryEventStore())


def success(number: int) -> bytes:
    return encode(Success(number, Raw(b"{}")))


Answer = Callable[[HttpSession, int], object]
ANSWERS: dict[str, Answer] = {
    "message": lambda one, number: one.send(Success(number, Raw(b"{}"))),
    "success": lambda one, number: one.send_success(number, b"{}"),
}


@pytest.mark.parametrize("how", ANSWERS)
async def test_a_response_goes_to_the_post_of_its_request(
    virtual_time: VirtualTime, how: str
) -> None:
    one, direct, answer = session(), Direct(), ANSWERS[how]
    stream = one.open_stream({1, 2})
    one.expect(3, direct)
    assert [one.asked(number) for number in range(1, 5)] == [True, True, True, False]
    answer(one, 4)
    answer(one, 3)
    answer(one, 3)
    assert direct.frames == [success(3)]
    virtual_time.now += 5
    answer(one, 1)
    assert one.used == time.monotonic() == virtual_time.now
    assert not stream.done
    answer(one, 1)
    answer(one, 2)
    assert [frame for _, frame in stream.take()] == [success(1), success(2)]
    assert stream.done
    assert not one.busy
    assert one.standalone.frames == []


async def test_an_error_goes_to_the_post_of_its_request() -> None:
    one, direct = session(), Direct()
    one.expect(1, direct)
    stream = one.open_stream({2})
    refusals = [failure(number, -1, "no") for number in (1, 2)]
    for refusal in refusals:
        one.send(refusal)
    one.send(failure(None, -1, "no"))
    assert direct.frames == [encode(refusals[0])]
    assert [frame for _, frame in stream.take()] == [encode(refusals[1])]


async def test_messages_related_to_a_request_go_to_its_stream() -> None:
    one, direct = session(), Direct()
    stream = one.open_stream({1})
    one.expect(2, direct)
    one.send(NOTE, reply_to=1)
    one.send(NOTE, reply_to=2)
    one.send(NOTE, reply_to=9)
    one.send(NOTE)
    [made] = direct.streams
    assert [len(s.frames) for s in (stream, made, one.standalone)] == [1, 1, 2]
    assert (stream.name, made.name, one.standalone.name) == ("p1", "p2", "g")
    assert stream.chatty
    one.use_stream(2)
    one.use_stream(7)
    assert direct.streams == [made]


async def test_a_stream_is_done_when_its_requests_are_cancelled() -> None:
    one, direct = session(), Direct()
    stream = one.open_stream({1, 2})
    stream.attach(object())
    one.keep(stream)
    one.expect(3, direct)
    for number in (3, 1, 9):
        one.finish(number)
    [made] = direct.streams
    assert [frame for _, frame in made.frames] == [cancelled(3)]
    assert (made.done, made.chatty) == (True, True)
    assert not stream.done
    assert one.find("p1") is stream
    one.finish(2)
    assert stream.done
    assert one.find("p1") is None
    assert [frame for _, frame in stream.take()] == [cancelled(1), cancelled(2)]


def cancelled(number: int) -> bytes:
    return encode(failure(number, -32800, "Request cancelled"))


async def test_a_session_is_busy_with_a_request_or_a_listener() -> None:
    one = session()
    assert not one.busy
    one.open_stream({1})
    assert one.busy
    one.send_success(1, b"{}")
    one.expect(2, Direct())
    assert one.busy
    one.send_success(2, b"{}")
    assert not one.busy
    one.standalone.attach(one)
    assert one.busy


async def test_a_stream_with_event_ids_can_be_found_until_it_is_done() -> None:
    one = session()
    stream, other = one.open_stream({1}), one.open_stream({2})
    assert one.find("g") is one.standalone
    assert one.find("p1") is None
    one.keep(stream)
    assert stream.numbered
    assert one.find("p1") is stream
    one.send_success(1, b"{}")
    assert one.find("p1") is None
    one.send_success(2, b"{}")
    one.keep(other)
    assert one.find("p2") is None


@pytest.mark.parametrize(
    ("size", "carried", "congested"),
    [
        (HIGH_WATER, True, False),
        (HIGH_WATER + 1, True, True),
        (HIGH_WATER + 1, False, False),
    ],
)
async def test_a_session_is_congested_while_a_reader_is_slow(
    size: int, carried: bool, congested: bool
) -> None:
    one = session()
    stream = one.open_stream({1})
    if carried:
        stream.attach(one)
    empty = len(encode(Notification("notifications/x", Raw(b'{"a":""}'))))
    text = b"x" * (size - empty)
    one.send(Notification("notifications/x", Raw(b'{"a":"%b"}' % text)), reply_to=1)
    assert stream.size == size
    assert one.congested is congested
    if congested:
        draining = asyncio.create_task(one.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        stream.take()
        assert not one.congested
        await draining


async def test_detaching_a_request_disconnects_its_stream() -> None:
    one, direct = session(), Direct()
    stream = one.open_stream({1})
    one.expect(2, direct)
    one.detach(9)
    one.detach(1)
    one.detach(2)
    assert stream.leaving
    assert direct.streams[0].leaving
    assert not one.standalone.leaving


async def test_closing_a_session_ends_all_streams_and_rejects_later_messages() -> None:
    one, direct = session(), Direct()
    stream, kept = one.open_stream({1}), one.open_stream({2})
    one.keep(kept)
    one._posts.pop(2)
    one.expect(3, direct)
    await one.close()
    await one.close()
    assert one.over
    assert all(s.done for s in (stream, kept, one.standalone, *direct.streams))
    assert len(direct.streams) == 1
    with pytest.raises(ChannelClosed) as refused:
        one.send(NOTE)
    assert refused.value.delivered is False


@pytest.mark.parametrize(
    ("version", "revision"),
    [("2025-11-25", Revision.V2025_11_25), ("1999", None), (None, None)],
)
async def test_a_session_has_the_negotiated_revision(
    version: str | None, revision: Revision | None
) -> None:
    one: Any = session()
    assert not one.settle_revision()
    one.served = Served(version)
    assert one.settle_revision() is (revision is not None)
    assert one.revision is revision


async def test_the_idle_time_begins_after_the_last_request_and_stream(
    virtual_time: VirtualTime,
) -> None:
    one = session()
    assert one.idle_since == virtual_time.now
    one.standalone.attach(carrier := object())
    assert one.idle_since is None
    virtual_time.now += 5.0
    one.standalone.detach(carrier)
    assert one.idle_since == virtual_time.now


async def test_a_session_has_a_stream_while_its_client_listens() -> None:
    one = session()
    assert (one.has_stream, one.busy) == (False, False)
    one.standalone.attach(carrier := object())
    assert (one.has_stream, one.busy) == (True, True)
    one.standalone.detach(carrier)
    assert (one.has_stream, one.busy) == (False, False)
