"""Client channel of HTTP+SSE (2024-11-05), with valid and invalid servers."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    HttpError,
    RemoteProtocolError,
    RequestTimeout,
    RpcError,
)
from fairlead.protocol.conversation.era_probe import NeedsHandshake, judge_lost_probe
from fairlead.transport.http.client.http1.http_client import HttpClient, HttpResponse
from fairlead.transport.http.client.http_channel import HttpChannel
from fairlead.transport.http.client.legacy_sse import LegacySseChannel, open_legacy_sse
from fairlead.transport.http.client.negotiation import open_http
from fairlead.transport.http.client.request_headers import RequestHeaders
from fairlead.wire import Notification, Request, encode
from tests.support.scripted_door import Asked, ScriptedDoor, ScriptedReply, stream
from tests.support.scripted_http_server import (
    Call,
    Host,
    RawServer,
    handshake_server,
    peer_over,
    raw_server,
    shake_hands,
)
from tests.support.virtual_time import VirtualTime


class LegacyServer:
    """A server with an event stream and an endpoint for POSTs, controlled by the test."""

    def __init__(self, endpoint: str = "/post?session=1") -> None:
        self.endpoint = endpoint
        self.stream: Call | None = None
        self.server: RawServer | None = None

    async def __call__(self, call: Call) -> None:
        if call.method == "GET":
            self.stream = call
            await call.begin_events()
            await call.chunk(f"event: endpoint\ndata: {self.endpoint}\n\n".encode())
            await call.gone()
        elif "id" in call.message:
            await call.accept()
            await self.answer(call.message)
        else:
            await call.accept()

    async def answer(self, message: dict[str, Any]) -> None:
        assert self.stream is not None
        result: dict[str, Any] = {"said": message.get("params")}
        if message["method"] == "initialize":
            result = {"protocolVersion": "2024-11-05", "capabilities": {}}
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        await self.stream.event(answer, event="message")


@pytest.mark.covers("SSE-03")
async def test_messages_are_posted_to_the_endpoint_and_responses_arrive_as_events() -> None:
    legacy = LegacyServer()
    async with raw_server(legacy) as server:
        headers = {"X-A": "1"}
        channel = await open_legacy_sse(server.url, headers=headers)
        async with peer_over(channel) as peer:
            await shake_hands(peer, "2024-11-05")
            result = json.loads(bytes(await peer.request("tools/list", {"n": 1})))
            assert result == {"said": {"n": 1}}
        assert [call.path for call in server.calls] == ["/mcp", *["/post?session=1"] * 3]
        assert all(call.headers["x-a"] == "1" for call in server.calls)
        assert all("mcp-protocol-version" not in call.headers for call in server.calls)


@pytest.mark.covers("SSE-03")
@pytest.mark.parametrize(
    "endpoint", ["http://example.com/post", "//example.com/post", "https://127.0.0.1/", "http://["]
)
async def test_an_endpoint_url_of_another_origin_is_rejected(endpoint: str) -> None:
    async with raw_server(LegacyServer(endpoint)) as server:
        with pytest.raises(ConnectFailed, match="another origin"):
            await open_legacy_sse(server.url)
        assert len(server.calls) == 1


@pytest.mark.covers("SSE-03")
@pytest.mark.parametrize("how", ["end", "cut"])
async def test_the_end_of_the_event_stream_closes_the_channel(how: str) -> None:
    class Leaving(LegacyServer):
        async def answer(self, message: dict[str, Any]) -> None:
            if message["method"] == "initialize":
                await super().answer(message)
                return
            assert self.stream is not None
            if how == "end":
                await self.stream.end()
            else:
                self.stream.cut()

    host = Host()
    async with raw_server(Leaving()) as server:
        async with peer_over(await open_legacy_sse(server.url), host) as peer:
            await shake_hands(peer, "2024-11-05")
            with pytest.raises(ChannelClosed, match="event stream"):
                await peer.request("tools/list")
            await peer.wait_closed()
        assert len(host.ends) == 1


async def test_a_refused_post_fails_only_its_own_request() -> None:
    class Picky(LegacyServer):
        async def __call__(self, call: Call) -> None:
            if call.rpc == "tools/list":
                await call.answer(413, "too much")
            else:
                await super().__call__(call)

    async with (
        raw_server(Picky()) as server,
        peer_over(await open_legacy_sse(server.url)) as peer,
    ):
        await shake_hands(peer, "2024-11-05")
        with pytest.raises(HttpError, match="HTTP 413: too much"):
            await peer.request("tools/list")
        assert bytes(await peer.request("prompts/list")) == b'{"said": null}'


async def test_invalid_messages_in_events_are_reported() -> None:
    class Chatty(LegacyServer):
        async def answer(self, message: dict[str, Any]) -> None:
            assert self.stream is not None
            await self.stream.event("{no json", event="message")
            await self.stream.event("x", event="strange")
            await super().answer(message)

    host = Host()
    async with raw_server(Chatty()) as server:
        async with peer_over(await open_legacy_sse(server.url), host) as peer:
            await shake_hands(peer, "2024-11-05")
        assert [type(error) for error in host.errors] == [RemoteProtocolError]


@pytest.mark.parametrize("stream", [b"data: hello\n\n", b": nothing\n\n", b"event: x\ndata: y\n\n"])
async def test_a_stream_that_does_not_send_an_endpoint_is_rejected(stream: bytes) -> None:
    async def handle(call: Call) -> None:
        await call.begin_events()
        await call.chunk(stream)
        await call.end()

    async with raw_server(handle) as server:
        with pytest.raises(ConnectFailed, match="endpoint"):
            await open_legacy_sse(server.url)


async def test_waiting_for_the_endpoint_times_out() -> None:
    async def handle(call: Call) -> None:
        await call.begin_events()
        await call.gone()

    async with raw_server(handle) as server:
        with pytest.raises(ConnectFailed, match=r"within 0\.05 seconds"):
            await open_legacy_sse(server.url, timeout=0.05)


@pytest.mark.covers("DEC-09")
@pytest.mark.parametrize("status", [400, 404, 405, 406])
async def test_mode_sse_falls_back_when_the_stream_is_refused(status: int) -> None:
    async def handle(call: Call) -> None:
        await call.answer(status)

    async with raw_server(handle) as server:
        channel = await open_http(server.url, mode="sse", listen=False)
        assert isinstance(channel, HttpChannel)
        await channel.close()


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_mode_sse_does_not_fall_back_after_status_401_403_or_500(status: int) -> None:
    async def handle(call: Call) -> None:
        await call.answer(status, "no")

    async with raw_server(handle) as server:
        with pytest.raises(HttpError, match=f"HTTP {status}: no"):
            await open_http(server.url, mode="sse")


async def test_mode_sse_reports_an_unreachable_server() -> None:
    async with raw_server(LegacyServer()) as server:
        url = server.url
    with pytest.raises(ConnectFailed, match="Could not connect"):
        await open_http(url, mode="sse")


async def test_mode_sse_uses_the_http_sse_event_stream_if_the_server_offers_it() -> None:
    async with raw_server(LegacyServer()) as server:
        channel = await open_http(server.url, mode="sse", pool_size=3, listen=True)
        assert isinstance(channel, LegacySseChannel)
        await asyncio.gather(channel.close(), channel.close())


class Old(LegacyServer):
    """A server that accepts only GET at its URL."""

    status = 405

    async def __call__(self, call: Call) -> None:
        if call.method == "POST" and call.path == "/mcp":
            await call.answer(self.status, "not here")
        else:
            await super().__call__(call)


@pytest.mark.covers("HTT-21", "DEC-09")
@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_refused_initialize_falls_back_to_http_sse(status: int) -> None:
    old = Old()
    old.status = status
    async with raw_server(old) as server:
        channel = await open_http(server.url)
        assert server.calls == []
        async with peer_over(channel) as peer:
            with pytest.raises(HttpError) as probed:
                await peer.request("server/discover", quiet=True)
            assert isinstance(judge_lost_probe(probed.value), NeedsHandshake)
            await shake_hands(peer, "2024-11-05")
            result = json.loads(bytes(await peer.request("tools/list", {"n": 1})))
            assert result == {"said": {"n": 1}}
            assert channel.context.transport_type == "sse"
        assert [(call.method, call.path) for call in server.calls[:4]] == [
            *(("POST", "/mcp"), ("POST", "/mcp"), ("GET", "/mcp"), ("POST", "/post?session=1")),
        ]


@pytest.mark.covers("HTT-21")
@pytest.mark.parametrize("status", [400, 401, 404, 500])
async def test_the_original_refusal_is_reported_if_http_sse_is_refused_as_well(status: int) -> None:
    async def handle(call: Call) -> None:
        await call.answer(status, f"refused a {call.method}")

    async with raw_server(handle) as server, peer_over(await open_http(server.url)) as peer:
        with pytest.raises(HttpError, match=f"HTTP {status}: refused a POST"):
            await peer.request("initialize", {})
        assert len(server.calls) == (2 if status in (400, 404) else 1)
        assert peer.connected


async def test_a_json_rpc_error_does_not_cause_a_fallback() -> None:
    async def handle(call: Call) -> None:
        error = {"code": -32602, "message": "no"}
        await call.json({"jsonrpc": "2.0", "id": call.message["id"], "error": error}, 400)

    async with raw_server(handle) as server, peer_over(await open_http(server.url)) as peer:
        with pytest.raises(RpcError):
            await peer.request("initialize", {})
        assert len(server.calls) == 1


async def test_the_channel_can_be_closed_during_the_fallback() -> None:
    async def handle(call: Call) -> None:
        await (call.answer(405) if call.method == "POST" else call.gone())

    async with raw_server(handle) as server:
        async with peer_over(await open_http(server.url)) as peer:
            asking = asyncio.create_task(peer.request("initialize", {}))
            await server.wait_for("GET")
            await peer.close()
            with pytest.raises(ChannelClosed):
                await asking


async def test_http_sse_is_not_tried_if_streamable_http_works() -> None:
    async with raw_server(handshake_server(LegacyServer())) as server:
        async with peer_over(await open_http(server.url, listen=False)) as peer:
            await shake_hands(peer)
        assert [call.rpc for call in server.calls] == [
            *("initialize", "notifications/initialized", "DELETE"),
        ]


async def test_closing_the_channel_waits_until_sent_messages_are_accepted() -> None:
    reached, release = asyncio.Event(), asyncio.Event()

    class Slow(LegacyServer):
        async def __call__(self, call: Call) -> None:
            if call.method == "POST":
                reached.set()
                await release.wait()
            await super().__call__(call)

    async with raw_server(Slow()) as server, asyncio.timeout(5):
        channel = await open_legacy_sse(server.url)
        reading = asyncio.create_task(channel.run(lambda message: None))
        channel.send(Notification("notifications/initialized"))
        await reached.wait()
        closing = asyncio.create_task(channel.close())
        again = asyncio.create_task(channel.close())
        await asyncio.wait((closing,), timeout=0.05)
        assert not closing.done()
        release.set()
        await asyncio.gather(closing, again)
        with pytest.raises(ChannelClosed):
            channel.send(Notification("notifications/initialized"))
        await asyncio.wait((reading,))
        reading.exception()


async def test_senders_wait_while_the_queue_is_above_its_high_water_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.transport.http.client.legacy_sse.HIGH_WATER", 100)
    release = asyncio.Event()

    class Slow(LegacyServer):
        async def __call__(self, call: Call) -> None:
            if call.method == "POST":
                await release.wait()
            await super().__call__(call)

    async with raw_server(Slow()) as server, asyncio.timeout(5):
        channel = await open_legacy_sse(server.url)
        reading = asyncio.create_task(channel.run(lambda message: None))
        await channel.drain()
        channel.send(Notification("x" * 100))
        assert channel.congested
        waiting = asyncio.create_task(channel.drain())
        await asyncio.sleep(0)
        assert not waiting.done()
        release.set()
        await waiting
        assert not channel.congested
        await channel.close()
        await asyncio.wait((reading,))


async def test_a_request_fails_if_its_post_is_not_accepted_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.transport.http.client.legacy_sse.POST_TIMEOUT", 0.05)

    class Deaf(LegacyServer):
        async def __call__(self, call: Call) -> None:
            if call.method == "POST":
                await call.gone()
            await super().__call__(call)

    got: asyncio.Queue[Any] = asyncio.Queue()
    errors: asyncio.Queue[Exception] = asyncio.Queue()
    async with raw_server(Deaf()) as server, asyncio.timeout(5):
        channel = await open_legacy_sse(server.url)
        channel.on_error = errors.put_nowait
        reading = asyncio.create_task(channel.run(got.put_nowait))
        channel.send(Request(7, "tools/list"))
        lost = await got.get()
        assert (lost.request_id, type(lost.error)) == (7, RequestTimeout)
        channel.send(Notification("notifications/initialized"))
        assert isinstance(await errors.get(), RequestTimeout)
        await channel.close()
        await asyncio.wait((reading,))


async def test_an_event_over_the_limit_is_reported() -> None:
    class Long(LegacyServer):
        async def answer(self, message: dict[str, Any]) -> None:
            assert self.stream is not None
            await self.stream.event({"x": "y" * 2000}, event="message")
            await super().answer(message)

    host = Host()
    async with raw_server(Long()) as server:
        async with peer_over(await open_legacy_sse(server.url, limit=1000), host) as peer:
            await shake_hands(peer, "2024-11-05")
        assert "over the limit of 1000" in str(host.errors[0])


# The stream


async def test_a_response_of_another_content_type_is_refused() -> None:
    async def handle(call: Call) -> None:
        await call.json({})

    async with raw_server(handle) as server:
        with pytest.raises(ConnectFailed, match="Invalid content type 'application/json': "):
            await open_legacy_sse(server.url)
        await hung_up(server)


async def hung_up(server: RawServer) -> None:
    """Wait until no connection is open."""
    async with asyncio.timeout(5):
        while server.open:
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (b"data: {}\n\n", "The first event of the stream is not the endpoint"),
        (b"event: other\ndata: x\n\n", "The first event of the stream is not the endpoint"),
        (b"data: " + b"x" * 3000 + b"\n\n", "The first event of the stream is not the endpoint"),
        (b"", "The stream ended before the endpoint event"),
        (b": hi\n\nevent: other\ndata:\n\n", "The stream ended before the endpoint event"),
        (None, "The stream broke before the endpoint: "),
    ],
    ids=["message", "other", "too long", "nothing", "no data", "broken"],
)
async def test_a_stream_that_does_not_begin_with_the_endpoint_is_closed(
    stream: bytes | None, problem: str
) -> None:
    async def handle(call: Call) -> None:
        await call.begin_events()
        if stream is None:
            call.cut()
            return
        if stream:
            await call.chunk(stream)
        if "ended" in problem:
            await call.end()
        await call.gone()

    async with raw_server(handle) as server:
        with pytest.raises(ConnectFailed, match=problem):
            await open_legacy_sse(server.url, limit=1000)
        await hung_up(server)


async def test_events_without_data_before_the_endpoint_are_ignored() -> None:
    async def handle(call: Call) -> None:
        if call.method == "POST":
            await call.accept()
            return
        await call.begin_events()
        await call.chunk(b": hi\n\nevent: other\ndata:\n\n")
        await call.chunk(b"event: endpoint\ndata: /there\n\n")
        await call.gone()

    async with raw_server(handle) as server, asyncio.timeout(5):
        channel = await open_legacy_sse(server.url)
        assert channel.context.transport_type == "sse"
        assert channel.context.peer_address == server.url
        channel.send(Notification("x"))
        assert (await server.wait_for("x")).path == "/there"
        await channel.close()


def note(method: str) -> bytes:
    return b'event: message\ndata: {"jsonrpc":"2.0","method":"%b"}\n\n' % method.encode()


async def test_events_in_the_same_chunk_as_the_endpoint_are_delivered_in_order() -> None:
    released = asyncio.Event()

    async def handle(call: Call) -> None:
        await call.begin_events()
        endpoint = b"event: endpoint\ndata: /there\n\n"
        others = b"event: other\ndata: x\n\nevent: message\ndata:\n\n: hi\n\n"
        await call.chunk(endpoint + note("one") + others + note("two"))
        await released.wait()
        await call.chunk(note("three") + b"data: {\n\n")
        await call.end()

    got: list[Any] = []
    async with raw_server(handle) as server, asyncio.timeout(5):
        channel = await open_legacy_sse(server.url)
        running = asyncio.create_task(channel.run(got.append))
        while len(got) < 2:
            await asyncio.sleep(0)
        released.set()
        with pytest.raises(ChannelClosed, match="the server ended the event stream"):
            await running
        *notes, problem = got
        assert notes == [Notification("one"), Notification("two"), Notification("three")]
        assert isinstance(problem, RemoteProtocolError)
        await channel.close()


async def test_a_broken_event_stream_is_reported() -> None:
    legacy = LegacyServer()
    async with raw_server(legacy) as server, asyncio.timeout(5):
        channel = await open_legacy_sse(server.url)
        running = asyncio.create_task(channel.run(lambda message: None))
        assert legacy.stream is not None
        legacy.stream.cut()
        with pytest.raises(ChannelClosed, match="the event stream broke: the connection to"):
            await running
        await channel.close()


async def test_closing_the_channel_ends_its_run_without_an_error() -> None:
    async with raw_server(LegacyServer()) as server, asyncio.timeout(5):
        channel = await open_legacy_sse(server.url)
        running = asyncio.create_task(channel.run(lambda message: None))
        await asyncio.sleep(0)
        await channel.close()
        assert await running is None
        await hung_up(server)


# POSTs


class HeldPosts(LegacyServer):
    """A server that answers POSTs one by one when the test allows it."""

    def __init__(self, status: int = 202) -> None:
        super().__init__()
        self.status = status
        self.posts: list[Any] = []
        self.release = asyncio.Semaphore(0)

    async def __call__(self, call: Call) -> None:
        if call.method == "POST":
            self.posts.append(call.message.get("method") or call.message)
            await self.release.acquire()
            await call.answer(self.status, "no" if self.status >= 400 else "")
        else:
            await super().__call__(call)

    async def until(self, count: int) -> list[Any]:
        """Wait for `count` POSTs, give others time to arrive, and return all of them."""
        async with asyncio.timeout(5):
            while len(self.posts) < count:
                await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        return self.posts


async def test_messages_wait_until_an_earlier_notification_was_accepted() -> None:
    held = HeldPosts()
    async with raw_server(held) as server, asyncio.timeout(10):
        channel = await open_legacy_sse(server.url)
        channel.send(Request(1, "first"))
        channel.send(Request(2, "second"))
        assert sorted(await held.until(2)) == ["first", "second"], "requests are sent concurrently"
        channel.send(Notification("note"))
        channel.send(Request(3, "third"))
        channel.send(Notification("last note"))
        channel.send_success(9, b"{}")
        assert (await held.until(3))[2:] == ["note"]
        held.release.release()
        held.release.release()
        held.release.release()
        posts = await held.until(5)
        assert sorted(posts[3:5]) == ["last note", "third"]
        held.release.release()
        held.release.release()
        assert (await held.until(6))[5:] == [{"jsonrpc": "2.0", "id": 9, "result": {}}]
        held.release.release()
        await channel.close()


async def test_a_request_after_an_accepted_notification_does_not_wait() -> None:
    held = HeldPosts()
    async with raw_server(held) as server, asyncio.timeout(10):
        channel = await open_legacy_sse(server.url)
        for number in range(3):
            channel.send(Notification(f"note {number}"))
            await held.until(number + 1)
            held.release.release()
            while channel._tasks:
                await asyncio.sleep(0)
        assert held.posts == ["note 0", "note 1", "note 2"]
        await channel.close()


@pytest.mark.parametrize("runs", [True, False])
async def test_a_refused_post_fails_its_request_or_is_reported_to_on_error(runs: bool) -> None:
    held = HeldPosts(413)
    got: list[Any] = []
    errors: list[Any] = []
    async with raw_server(held) as server, asyncio.timeout(10):
        channel = await open_legacy_sse(server.url)
        running = asyncio.create_task(channel.run(got.append)) if runs else None
        for _ in range(3):
            held.release.release()
        channel.send(Notification("before on_error is set"))
        while channel._tasks:
            await asyncio.sleep(0)
        assert (got, errors) == ([], [])
        channel.on_error = errors.append
        channel.send(Request(5, "x"))
        channel.send(Notification("y"))
        while channel._tasks:
            await asyncio.sleep(0)
        assert all(isinstance(error, HttpError) and error.status == 413 for error in errors)
        assert [(lost.request_id, str(lost.error)) for lost in got] == (
            [(5, "HTTP 413: no")] if runs else []
        )
        assert len(errors) == (1 if runs else 2)
        await channel.close()
        if running is not None:
            await running


async def test_senders_may_queue_exactly_the_high_water_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = len(encode(Notification("x")))
    monkeypatch.setattr("fairlead.transport.http.client.legacy_sse.HIGH_WATER", 2 * size)
    held = HeldPosts()
    async with raw_server(held) as server, asyncio.timeout(10):
        channel = await open_legacy_sse(server.url)
        for _ in range(2):
            channel.send(Notification("x"))
        assert not channel.congested
        await channel.drain()
        channel.send(Notification("x"))
        assert channel.congested
        waiting = [asyncio.create_task(channel.drain()) for _ in range(2)]
        await held.until(1)
        assert not any(one.done() for one in waiting)
        held.release.release()
        await asyncio.gather(*waiting)
        assert not channel.congested
        for _ in range(2):
            held.release.release()
        while channel._tasks:
            await asyncio.sleep(0)
        for _ in range(3):
            channel.send(Notification("x"))
        assert channel.congested, "bytes of earlier messages are still counted"
        closing = asyncio.create_task(channel.close())
        await asyncio.sleep(0)
        with pytest.raises(ChannelClosed) as refused:
            await channel.drain()
        assert refused.value.delivered is False
        with pytest.raises(ChannelClosed) as refused:
            channel.send_success(1, b"{}")
        assert refused.value.delivered is False
        for _ in range(3):
            held.release.release()
        await closing


async def test_closing_does_not_wait_for_a_post_that_is_never_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.transport.http.client.legacy_sse.LINGER", 0.02)
    held = HeldPosts()
    errors: list[Exception] = []
    async with raw_server(held) as server, asyncio.timeout(5):
        channel = await open_legacy_sse(server.url)
        channel.on_error = errors.append
        channel.send(Notification("x"))
        channel.send(Notification("y"))
        await held.until(1)
        await channel.close()
        assert (held.posts, errors, channel._tasks) == (["x"], [], set())
        held.release.release()
        await hung_up(server)


async def test_a_post_whose_response_is_truncated_is_reported() -> None:
    class Breaking(LegacyServer):
        async def __call__(self, call: Call) -> None:
            if call.method == "GET":
                await super().__call__(call)
                return
            await call.raw(b"HTTP/1.1 202 Accepted\r\nContent-Length: 10\r\n\r\nhalf")
            call.cut()

    errors: asyncio.Queue[Exception] = asyncio.Queue()
    async with raw_server(Breaking()) as server, asyncio.timeout(5):
        channel = await open_legacy_sse(server.url)
        channel.on_error = errors.put_nowait
        channel.send(Notification("x"))
        assert isinstance(await errors.get(), ChannelClosed)
        await channel.close()


async def test_opening_an_event_stream_may_be_cancelled() -> None:
    async def handle(call: Call) -> None:
        await call.begin_events()
        await call.gone()

    async with raw_server(handle) as server, asyncio.timeout(5):
        opening = asyncio.create_task(open_legacy_sse(server.url))
        await server.wait_for("GET")
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await hung_up(server)


# Without a network


def quiet_channel(door: ScriptedDoor) -> tuple[LegacySseChannel, ScriptedReply]:
    made: Any = door
    made.address = SimpleNamespace(url="http://a.example/sse")
    heard = stream()
    return LegacySseChannel(made, RequestHeaders(), heard, limit=1000), heard


async def never(asked: Asked) -> HttpResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_post_times_out_after_30_seconds(virtual_time: VirtualTime) -> None:
    channel, _ = quiet_channel(ScriptedDoor(never))
    errors: list[Exception] = []
    channel.on_error = errors.append
    channel.send(Notification("x"))
    await asyncio.sleep(29.9)
    assert errors == []
    await asyncio.sleep(0.2)
    (error,) = errors
    assert isinstance(error, RequestTimeout)
    assert error.seconds == 30.0
    await channel.close()


async def test_closing_the_channel_waits_one_second_for_queued_messages(
    virtual_time: VirtualTime,
) -> None:
    door = ScriptedDoor(never)
    channel, heard = quiet_channel(door)
    channel.send(Notification("x"))
    begun = virtual_time.now
    await channel.close()
    assert virtual_time.now - begun == pytest.approx(1.0)
    assert (heard.dropped, door.closed) == (True, True)


async def test_the_high_water_mark_is_one_mebibyte() -> None:
    channel, _ = quiet_channel(ScriptedDoor(never))
    empty = len(encode(Notification("")))
    channel.send(Notification("x" * ((1 << 20) - empty)))
    assert not channel.congested
    channel.send_success(1, b"{}")
    assert channel.congested
    for task in tuple(channel._tasks):
        task.cancel()
    await channel.close()


async def test_waiting_for_the_endpoint_takes_ten_seconds_at_most(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpClient, "open", lambda self, *args: never(args[0]))
    begun = virtual_time.now
    with pytest.raises(ConnectFailed, match="No endpoint event within 10 seconds"):
        await open_legacy_sse("http://a.example/sse")
    assert virtual_time.now - begun == pytest.approx(10.0)


async def test_a_refused_event_stream_leaves_no_connection() -> None:
    async def handle(call: Call) -> None:
        await call.answer(404, "no")

    async with raw_server(handle) as server:
        with pytest.raises(HttpError):
            await open_legacy_sse(server.url)
        async with asyncio.timeout(2):  # a kept connection would be closed after four seconds
            while server.open:
                await asyncio.sleep(0)
