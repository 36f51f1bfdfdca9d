"""The stream on which a server of the handshake era sends by itself."""

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
    RemoteProtocolError,
)
from fairlead.transport.http.client.listen_stream import (
    LEAST,
    LONGEST,
    SHORTEST,
    ListenStream,
    backoff,
)
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
def test_waits_respect_the_server_and_grow_with_failures(failures: int, retry: int | None) -> None:
    waited = backoff(failures, retry)
    asked = SHORTEST if retry is None else max(retry / 1000, LEAST)
    assert waited >= asked
    assert waited <= max(asked, LONGEST) * 1.25
    if failures > 10:
        assert waited >= LONGEST


@pytest.mark.covers("HTT-13", "HTT-14")
async def test_the_listening_stream_is_restored() -> None:
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
async def test_a_refused_listening_stream_is_not_asked_for_again(status: int) -> None:
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
async def test_listening_can_be_turned_off() -> None:
    async with raw_server(handshake_server(echo)) as server:
        async with connected(server.url, listen=False) as (peer, _):
            await peer.request("tools/list")
        assert server.of("GET") == []


@pytest.mark.covers("HTT-14")
async def test_a_listening_stream_that_cannot_be_restored_ends_the_channel(
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


async def test_answers_may_come_on_the_listening_stream() -> None:
    """Some servers take every POST with a 202."""
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
    """Opens as many streams as it is told, of some seconds each, and then none."""

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
async def test_a_stream_that_was_open_is_given_up_after_nine_failures(
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
async def test_one_that_never_was_is_not_missed(virtual_time: VirtualTime) -> None:
    door = FakeDoor(virtual_time)
    await listener(door).run()
    assert len(door.opened) == 9


@pytest.mark.usefixtures("no_jitter")
@pytest.mark.parametrize(("seconds", "pause"), [(5.1, 0.5), (4.9, 1.0)])
async def test_a_stream_that_lasted_five_seconds_is_opened_again_soon(
    virtual_time: VirtualTime, seconds: float, pause: float
) -> None:
    door = FakeDoor(virtual_time, 0.0, seconds)
    with pytest.raises(ChannelClosed):
        await listener(door).run()
    assert door.opened[1] - door.opened[0] == pytest.approx(0.5)
    assert door.opened[2] - door.opened[1] == pytest.approx(seconds + pause)


@pytest.mark.usefixtures("no_jitter")
def test_a_server_may_ask_for_less_time_but_not_for_none() -> None:
    assert [backoff(1, retry) for retry in (None, 0, 49, 51, 2000)] == [0.5, 0.05, 0.05, 0.051, 2.0]
