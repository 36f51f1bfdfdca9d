"""The listening stream of a session: opening, reconnecting and refusals."""

import asyncio
import json
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    HttpError,
    RemoteProtocolError,
)
from fairlead.transport.http.client.listen_stream import (
    LEAST,
    LONGEST,
    SHORTEST,
    ListenStream,
    SessionListener,
    backoff,
)
from fairlead.wire.sse import EventTooLong
from tests.support.scripted_door import Asked, ScriptedDoor, reply, stream
from tests.support.scripted_http_server import (
    Call,
    Host,
    connected,
    echo,
    handshake_server,
    handshake_server_with_listening,
    progress,
    raw_server,
)
from tests.support.virtual_time import VirtualTime


@given(st.integers(0, 2000), st.none() | st.integers(0, 10_000))
def test_the_backoff_uses_the_delay_of_the_server_and_grows_with_failures(
    failures: int, retry: int | None
) -> None:
    waited = backoff(failures, retry)
    asked = SHORTEST if retry is None else max(retry / 1000, LEAST)
    assert waited >= asked
    assert waited <= max(asked, LONGEST) * 1.25
    if failures > 10:
        assert waited >= LONGEST


@pytest.mark.covers("HTT-13", "HTT-14")
async def test_a_lost_listening_stream_is_reopened() -> None:
    async def rest(call: Call) -> None:
        count = len(server.of("GET"))
        await call.begin_events()
        await call.event(progress(count), id=f"g_{count}", retry="1")
        if count == 3:
            await call.gone()
        elif count == 2:
            call.cut()
        else:
            await call.end()

    host = Host()
    async with (
        raw_server(handshake_server_with_listening(rest)) as server,
        connected(server.url, host=host) as (_, channel),
    ):
        channel.on_error = host.errors.append
        told = [await host.told.get() for _ in range(3)]
        assert [json.loads(bytes(n.params))["data"] for n in told] == [1, 2, 3]  # type: ignore[arg-type]
        seen = [call.headers.get("last-event-id") for call in server.of("GET")]
        assert seen == [None, "g_1", "g_2"]
        assert server.of("GET")[0].headers["accept"] == "text/event-stream"
        assert [type(error) for error in host.errors] == [ChannelClosed]


@pytest.mark.covers("HTT-13")
@pytest.mark.parametrize("status", [405, 400, 500])
async def test_a_refused_listening_stream_is_not_requested_again(status: int) -> None:
    async def rest(call: Call) -> None:
        await (call.answer(status) if call.rpc == "GET" else call.result({}))

    host = Host()
    async with (
        raw_server(handshake_server_with_listening(rest)) as server,
        connected(server.url, host=host) as (peer, channel),
    ):
        channel.on_error = host.errors.append
        await peer.request("tools/list")
        assert channel._listener.task is not None
        await asyncio.wait((channel._listener.task,))
        assert len(server.of("GET")) == 1
        assert host.errors == []


@pytest.mark.covers("HTT-13")
async def test_the_listening_stream_can_be_disabled() -> None:
    async with raw_server(handshake_server(echo)) as server:
        async with connected(server.url, listen=False) as (peer, _):
            await peer.request("tools/list")
        assert server.of("GET") == []


@pytest.mark.covers("HTT-14")
async def test_the_channel_ends_if_the_listening_stream_cannot_be_reopened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.transport.http.client.listen_stream.TRIES", 2)
    monkeypatch.setattr("fairlead.transport.http.client.listen_stream.SHORTEST", 0.01)

    async def rest(call: Call) -> None:
        if len(server.of("GET")) == 1:
            await call.begin_events()
            call.cut()
        else:
            await call.answer(503)

    host = Host()
    async with (
        raw_server(handshake_server_with_listening(rest)) as server,
        connected(server.url, host=host) as (peer, _),
    ):
        end = await peer.wait_closed()
        assert "cannot be restored" in str(end)
        assert len(host.ends) == 1


@pytest.mark.covers("HTT-12")
async def test_an_unreadable_event_on_the_listening_stream_is_reported() -> None:
    async def rest(call: Call) -> None:
        await call.begin_events()
        await call.event("{no json")
        await call.event(progress(1))
        await call.gone()

    host = Host()
    async with (
        raw_server(handshake_server_with_listening(rest)) as server,
        connected(server.url, host=host),
    ):
        await host.told.get()
        assert [type(error) for error in host.errors] == [RemoteProtocolError]


async def test_responses_may_arrive_on_the_listening_stream() -> None:
    """Some servers respond to every POST with 202 and send the response on this stream."""
    listening: list[Call] = []

    async def rest(call: Call) -> None:
        if call.rpc == "GET":
            listening.append(call)
            await call.begin_events()
            await call.gone()
        else:
            await call.accept()
            await listening[0].event({"jsonrpc": "2.0", "id": call.message["id"], "result": {}})

    async with (
        raw_server(handshake_server_with_listening(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        assert bytes(await peer.request("tools/list")) == b"{}"


class FakeDoor:
    """A client whose streams last for the given durations; later attempts to connect fail."""

    def __init__(self, clock: VirtualTime, *lasting: float) -> None:
        self.opened: list[float] = []
        self._clock = clock
        self._lasting = list(lasting)

    async def open(self, method: str, headers: Any) -> Any:
        self.opened.append(self._clock.now)
        if not self._lasting:
            raise ConnectFailed("gone")
        seconds = self._lasting.pop(0)

        async def chunk() -> bytes:
            await asyncio.sleep(seconds)
            return b""

        return SimpleNamespace(ok=True, streams=True, status=200, chunk=chunk, close=lambda: None)


def listener(door: Any) -> ListenStream:
    async def refused(error: Exception) -> bool:
        return False

    return ListenStream(
        door, lambda last: {}, lambda event: None, refused=refused, on_error=lambda error: None
    )


@pytest.fixture
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: low)


@pytest.mark.usefixtures("no_jitter")
async def test_a_stream_that_was_open_is_abandoned_after_nine_failures(
    virtual_time: VirtualTime,
) -> None:
    door = FakeDoor(virtual_time, 6.0)
    stream = listener(door)
    with pytest.raises(ChannelClosed, match="cannot be restored"):
        await stream.run()
    assert stream.settled.is_set()
    gaps = [later - earlier for earlier, later in pairwise(door.opened)]
    assert gaps == pytest.approx([6.5, 1, 2, 4, 8, 16, 30, 30])


@pytest.mark.usefixtures("no_jitter")
async def test_a_stream_that_never_opened_is_abandoned_without_an_error(
    virtual_time: VirtualTime,
) -> None:
    door = FakeDoor(virtual_time)
    await listener(door).run()
    assert len(door.opened) == 9


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize(("seconds", "pause"), [(5.1, 0.5), (4.9, 1.0)])
async def test_a_stream_that_lasted_five_seconds_is_reopened_without_backoff(
    virtual_time: VirtualTime, seconds: float, pause: float
) -> None:
    door = FakeDoor(virtual_time, 0.0, seconds)
    with pytest.raises(ChannelClosed):
        await listener(door).run()
    assert door.opened[1] - door.opened[0] == pytest.approx(0.5)
    assert door.opened[2] - door.opened[1] == pytest.approx(seconds + pause)


@pytest.mark.usefixtures("no_jitter")
def test_the_retry_field_may_shorten_the_delay_to_a_minimum() -> None:
    assert [backoff(1, retry) for retry in (None, 0, 49, 51, 2000)] == [0.5, 0.05, 0.05, 0.051, 2.0]


# A listening stream without a network


class Listening:
    """A `ListenStream` that receives the given responses in order."""

    def __init__(self, *replies: Any, mends: bool | Exception = False) -> None:
        self.replies = list(replies)
        self.door = ScriptedDoor(self._next)
        self.events: list[Any] = []
        self.errors: list[Exception] = []
        self.refused: list[int] = []
        self.mends = mends
        self.stream = ListenStream(
            self.door,  # type: ignore[arg-type]
            lambda last: {"Last": str(last)},
            self.events.append,
            refused=self._refused,
            on_error=self.errors.append,
            limit=1000,
        )

    async def _next(self, asked: Asked) -> Any:
        if not self.replies:
            await asyncio.Event().wait()
        found = self.replies.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def _refused(self, error: HttpError) -> bool:
        self.refused.append(error.status)
        assert self.stream.mending
        if isinstance(self.mends, Exception):
            raise self.mends
        return self.mends

    @property
    def asked_after(self) -> list[str]:
        return [asked.headers["last"] for asked in self.door.asked]


def ended(*events: Any, **fields: str) -> Any:
    made = stream()
    for event in events:
        made.event(event, **fields)
    made.end()
    return made


@pytest.mark.parametrize("status", [400, 405, 500])
async def test_a_listening_stream_is_requested_only_once_if_the_server_has_none(
    status: int,
) -> None:
    one = Listening(reply(status))
    await one.stream.run()
    assert one.stream.settled.is_set()
    assert (len(one.door.asked), one.errors, one.refused) == (1, [], [])


async def test_a_response_that_is_not_an_event_stream_ends_listening_without_an_error() -> None:
    one = Listening(reply(200, {}))
    await one.stream.run()
    assert (len(one.door.asked), one.errors) == (1, [])


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize(("status", "errors"), [(405, 0), (500, 8), (400, 8)])
async def test_a_refused_reconnection_is_a_failure_unless_the_status_is_405(
    virtual_time: VirtualTime, status: int, errors: int
) -> None:
    one = Listening(ended({"n": 1}), *(reply(status) for _ in range(20)))
    if status == 405:
        await one.stream.run()
    else:
        with pytest.raises(ChannelClosed, match=f"cannot be restored: HTTP {status}"):
            await one.stream.run()
    assert (len(one.errors), one.refused) == (errors, [])


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_refused_stream_is_requested_again_if_the_refusal_was_resolved(
    virtual_time: VirtualTime, status: int
) -> None:
    first = ended({"n": 1}, id="a", retry="10")
    one = Listening(first, reply(status), ended({"n": 2}, id="b"), reply(405), mends=True)
    await one.stream.run()
    assert one.refused == [status]
    assert one.asked_after == ["None", "a", "None" if status == 404 else "a", "b"]
    assert (len(one.events), one.errors, one.stream.mending) == (2, [], False)


async def test_a_refused_stream_is_not_requested_again_after_an_unresolved_refusal() -> None:
    one = Listening(reply(403))
    await one.stream.run()
    assert (one.refused, len(one.door.asked), one.errors) == ([403], 1, [])


async def test_an_unresolved_refusal_is_reported_if_the_stream_was_open_before(
    virtual_time: VirtualTime,
) -> None:
    one = Listening(ended({"n": 1}), reply(403), reply(405))
    await one.stream.run()
    (error,) = one.errors
    assert isinstance(error, HttpError)
    assert (error.status, one.refused, len(one.door.asked)) == (403, [403], 3)


async def test_an_exception_in_the_refusal_handler_ends_the_stream() -> None:
    one = Listening(reply(401), mends=ValueError("boom"))
    with pytest.raises(ValueError, match="boom"):
        await one.stream.run()
    assert not one.stream.mending
    assert one.stream.settled.is_set()


@pytest.mark.usefixtures("no_jitter")
async def test_the_retry_field_sets_the_reconnection_delay(virtual_time: VirtualTime) -> None:
    too_long = ended("x" * 2000, id="a")
    one = Listening(ended({}, retry="3000"), too_long, reply(405))
    await one.stream.run()
    first, second, third = one.door.asked
    assert (second.at - first.at, third.at - second.at) == pytest.approx((3.0, 3.0))
    assert isinstance(one.events[1], EventTooLong)


async def test_the_settled_event_is_set_when_the_stream_opens() -> None:
    one = Listening(made := stream())
    running = asyncio.create_task(one.stream.run())
    assert not one.stream.settled.is_set()
    async with asyncio.timeout(5):
        await one.stream.settled.wait()
    assert not running.done()
    running.cancel()
    await asyncio.wait((running,))
    assert made.dropped


# Listeners of sessions


class Sessions:
    """A `SessionListener` over streams that the test ends."""

    def __init__(self) -> None:
        self.streams: list[Any] = []
        self.lost: list[Exception] = []
        self.errors: list[Exception] = []
        self.listener = SessionListener(
            self._make,
            start=asyncio.ensure_future,  # type: ignore[arg-type]
            lost=self.lost.append,
            on_error=self.errors.append,
        )

    def _make(self) -> Any:
        outcome = asyncio.get_running_loop().create_future()

        async def run() -> None:
            await outcome

        made = SimpleNamespace(
            run=run,
            outcome=outcome,
            mending=False,
            settled=asyncio.Event(),
            number=len(self.streams),
        )
        self.streams.append(made)
        return made


async def test_opening_waits_until_the_stream_is_settled_or_times_out(
    virtual_time: VirtualTime,
) -> None:
    one = Sessions()
    assert not one.listener.active
    begun = virtual_time.now
    await one.listener.open(3.0)
    assert virtual_time.now - begun == pytest.approx(3.0)
    assert (one.listener.active, len(one.streams)) == (True, 1)
    opening = asyncio.create_task(one.listener.open(60.0))
    await asyncio.sleep(1)
    assert not opening.done()
    one.streams[0].settled.set()
    await opening
    assert virtual_time.now - begun == pytest.approx(4.0)
    assert len(one.streams) == 1, "already open"
    one.streams[0].outcome.set_result(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not one.listener.active
    await one.listener.open(0)
    assert len(one.streams) == 2
    one.streams[1].outcome.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not one.listener.active


async def test_reopen_replaces_an_open_listening_stream() -> None:
    one = Sessions()
    one.listener.reopen()
    assert one.streams == [], "not listening before"
    await one.listener.open(0)
    one.listener.reopen()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(one.streams) == 2
    assert one.streams[0].outcome.cancelled()
    one.streams[1].mending = True
    one.listener.reopen()
    assert len(one.streams) == 2, "the stream reopens itself"
    one.streams[1].outcome.set_result(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    one.streams[1].mending = False
    one.listener.reopen()
    assert len(one.streams) == 2, "the stream has ended"
    assert (one.lost, one.errors) == ([], [])


async def test_lost_streams_and_other_errors_are_reported_separately() -> None:
    one = Sessions()
    for problem, lost, errors in (
        (ChannelClosed("gone"), 1, 0),
        (ConnectFailed("no"), 1, 1),
    ):
        await one.listener.open(0)
        one.streams[-1].outcome.set_exception(problem)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (len(one.lost), len(one.errors)) == (lost, errors)
