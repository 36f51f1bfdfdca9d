"""Detection of the HTTP transport of a server, without a network."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.errors import ChannelClosed, ConnectFailed, HttpError
from fairlead.protocol.envelope import TransportContext
from fairlead.transport.channel import RequestLost
from fairlead.transport.http.client import http_channel as channels
from fairlead.transport.http.client import negotiation
from fairlead.transport.http.client.http1.http_client import HttpResponse
from fairlead.transport.http.client.http_channel import HttpChannel
from fairlead.transport.http.client.negotiation import NegotiatingChannel, open_http
from fairlead.wire import Notification, Request
from tests.support.scripted_door import Asked, ScriptedDoor, reply


class OldChannel:
    """A stand-in for the channel of HTTP+SSE (2024-11-05)."""

    context = TransportContext(transport_type="sse")

    def __init__(self, *, closed: bool = False) -> None:
        self.sent: list[Any] = []
        self.done: list[str] = []
        self.congested = True
        self.on_error: Any = None
        self._closed = closed
        self.end = asyncio.Event()

    async def run(self, deliver: Callable[[Any], None]) -> None:
        deliver("hello")
        await self.end.wait()

    def send(self, message: Any, *, reply_to: Any = None) -> None:
        if self._closed:
            raise ChannelClosed("too late", delivered=False)
        self.sent.append((message, reply_to))

    def send_success(self, request_id: Any, result: Any) -> None:
        self.sent.append((request_id, result))

    async def drain(self) -> None:
        self.done.append("drain")

    async def close(self) -> None:
        self.done.append("close")
        self.end.set()


class Scene:
    """A negotiating channel to a server that refuses everything with one status."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: int, old: Any) -> None:
        self.got: list[Any] = []
        self.opened: list[Any] = []
        self.old = old
        self.door = ScriptedDoor(self._answer)
        self._status = status
        monkeypatch.setattr(channels, "HttpClient", lambda address, **tls: self.door)
        monkeypatch.setattr(negotiation, "open_legacy_sse", self._open)
        options: dict[str, Any] = {"headers": {"a": "b"}, "listen": False, "pool_size": 3}
        self.channel = NegotiatingChannel("http://a.example/mcp", **options)
        self.running = asyncio.ensure_future(self.channel.run(self.got.append))

    async def _answer(self, asked: Asked) -> HttpResponse:
        return reply(self._status, b"no")

    async def _open(self, url: str, **options: Any) -> Any:
        self.opened.append((url, options))
        if isinstance(self.old, Exception):
            raise self.old
        return self.old

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0)

    async def close(self) -> None:
        await self.channel.close()
        await asyncio.wait((self.running,))


HELLO = Request(1, "initialize")


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_refused_initialize_is_sent_again_over_http_sse(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    one = Scene(monkeypatch, status, old := OldChannel())
    assert (one.channel.correlates_calls, one.channel.congested) == (True, False)
    await one.channel.drain()
    one.channel.on_error = one.got.append
    one.channel.send(HELLO)
    await one.until(lambda: one.got)
    assert one.got == ["hello"], "the refusal is not delivered"
    assert one.opened == [("http://a.example/mcp", {"headers": {"a": "b"}})]
    assert old.sent == [(HELLO, None)]
    assert old.on_error is one.channel.on_error
    assert one.channel.context is old.context
    assert one.door.closed
    assert (one.channel.correlates_calls, one.channel.congested) == (False, True)
    one.channel.send(Request(2, "tools/list"), reply_to=7)
    one.channel.send_success(9, b"{}")
    await one.channel.tell(Notification("x"))
    await one.channel.drain()
    assert old.sent[1:] == [(Request(2, "tools/list"), 7), (9, b"{}"), (Notification("x"), None)]
    await one.close()
    assert old.done == ["drain", "close"]


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_an_initialize_refused_with_401_403_or_500_fails_without_a_fallback(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    one = Scene(monkeypatch, status, OldChannel())
    one.channel.send(HELLO)
    await one.until(lambda: one.got)
    (lost,) = one.got
    assert (lost.request_id, lost.error.status, one.opened) == (1, status, [])
    await one.close()


async def test_only_a_refused_initialize_causes_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Scene(monkeypatch, 404, OldChannel())
    one.channel.send(Request(2, "tools/list"))
    await one.until(lambda: one.got)
    assert (one.got[0].request_id, one.opened) == (2, [])
    one.channel.send(HELLO)
    one.channel.send(Request(3, "tools/list"))
    await one.until(lambda: one.opened)
    await one.close()
    assert [item.request_id for item in one.got if isinstance(item, RequestLost)][:1] == [2]


@pytest.mark.parametrize(
    "problem",
    [ConnectFailed("no"), HttpError(500, "no"), ChannelClosed("no")],
    ids=["unreachable", "refused", "closed"],
)
async def test_the_refusal_is_delivered_if_the_fallback_fails(
    monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    one = Scene(monkeypatch, 405, problem)
    for count in (1, 2):
        one.channel.send(HELLO)
        await one.until(lambda count=count: len(one.got) == count)  # type: ignore[misc]
        assert (one.got[-1].request_id, one.got[-1].error.status) == (1, 405)
    assert len(one.opened) == 1, "tried once"
    assert not one.door.closed
    await one.close()


async def test_initialize_is_lost_if_the_legacy_channel_is_already_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Scene(monkeypatch, 405, OldChannel(closed=True))
    one.channel.send(HELLO)
    await one.until(lambda: one.got)
    (lost,) = one.got
    assert (lost.request_id, lost.error.reason) == (1, "too late")
    await one.close()


async def test_closing_the_channel_cancels_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Scene(monkeypatch, 405, OldChannel())
    searching = asyncio.Event()

    async def forever(url: str, **options: Any) -> Any:
        searching.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(negotiation, "open_legacy_sse", forever)
    one.channel.send(HELLO)
    async with asyncio.timeout(5):
        await searching.wait()
        await one.close()
    assert (one.got, one.door.closed) == ([], True)


@pytest.mark.parametrize(
    ("problem", "falls_back"),
    [
        (HttpError(404, "no"), True),
        (HttpError(405, "no"), True),
        (HttpError(401, "no"), False),
        (HttpError(500, "no"), False),
        (ConnectFailed("no events"), True),
    ],
    ids=["404", "405", "401", "500", "no events"],
)
async def test_mode_sse_tries_http_sse_first(
    monkeypatch: pytest.MonkeyPatch, problem: Exception, falls_back: bool
) -> None:
    async def refuse(url: str, **options: Any) -> Any:
        assert options == {"headers": {}}
        raise problem

    monkeypatch.setattr(negotiation, "open_legacy_sse", refuse)
    opening = open_http("http://a.example", mode="sse", headers={}, listen=False, pool_size=1)
    if falls_back:
        channel = await opening
        assert type(channel) is HttpChannel
        await channel.close()
    else:
        with pytest.raises(type(problem)):
            await opening


async def test_mode_sse_does_not_fall_back_if_the_server_is_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(url: str, **options: Any) -> Any:
        raise ConnectFailed("refused") from OSError()

    monkeypatch.setattr(negotiation, "open_legacy_sse", refuse)
    with pytest.raises(ConnectFailed):
        await open_http("http://a.example", mode="sse")


async def test_open_http_returns_a_negotiating_channel_without_connecting() -> None:
    channel = await open_http("http://a.example")
    assert type(channel) is NegotiatingChannel
    await channel.close()
