"""One HTTP connection without a socket: exact limits in bytes and seconds, and closing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from fairlead.limits import BODY_TIMEOUT
from fairlead.transport.http.server.guarded_protocol import GuardedProtocol
from tests.support.fake_http_transport import FakeHttpTransport, turns
from tests.support.virtual_time import VirtualTime

GET = b"GET /x HTTP/1.1\r\nhost: here\r\n\r\n"
MAX_HEAD = 64 << 10


class Upgraded(asyncio.Protocol):
    """A stand-in for the WebSocket protocol."""

    handshake_initiated = True

    def __init__(self, **settings: Any) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data


class Connection:
    """A connection to an ASGI application that responds when the test allows it."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.ends: list[str] = []
        self.answer = asyncio.Event()
        self.length: int | None = 2
        self.script: Callable[..., Any] | None = None  # replaces the usual ASGI application
        config = Config(self.app, interface="asgi3", lifespan="off", log_config=None, ws=Upgraded)
        config.load()
        self.state = ServerState()
        self.protocol = GuardedProtocol(config=config, server_state=self.state, app_state={})
        self.transport = FakeHttpTransport()
        self.transport.protocol = self.protocol
        self.protocol.connection_made(self.transport)
        self.begun = asyncio.get_running_loop().time()

    async def app(self, scope: Any, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        self.requests.append(scope)
        if self.script is not None:
            await self.script(receive, send)
            return
        body, more = b"", True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                self.ends.append("disconnected")
                return
            body += event["body"]
            more = event["more_body"]
        self.bodies.append(body)
        await self.answer.wait()
        headers = [] if self.length is None else [(b"content-length", b"%d" % self.length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})
        self.ends.append("answered")

    async def feed(self, data: bytes) -> None:
        self.protocol.data_received(data)
        await turns()

    async def lose(self) -> None:
        self.answer.set()
        self.protocol.connection_lost(None)
        await turns()

    @property
    def status(self) -> bytes:
        return self.transport.written.partition(b"\r\n")[0]

    @property
    def closed_after(self) -> float | None:
        at = self.transport.closed_at
        return None if at is None else at - self.begun


def refusal(status: str, why: str) -> bytes:
    said = f"{status}: {why}\n"
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
        f"content-length: {len(said)}\r\n\r\n{said}"
    ).encode()


@pytest.mark.parametrize("data", [b"", b"GET /x HTTP/1.1\r\nhost"], ids=["nothing", "half a head"])
async def test_an_incomplete_request_head_times_out_after_ten_seconds(
    virtual_time: VirtualTime, data: bytes
) -> None:
    one = Connection()
    if data:
        await one.feed(data)
    await asyncio.sleep(60)
    assert one.closed_after == pytest.approx(10.0)
    await one.lose()


async def test_partial_data_does_not_restart_the_timeout_of_a_request_head(
    virtual_time: VirtualTime,
) -> None:
    one = Connection()
    await one.feed(b"GET /x HTTP/1.1\r\n")
    await asyncio.sleep(9)
    await one.feed(b"host: here\r\n")
    await asyncio.sleep(9)
    assert one.closed_after == pytest.approx(10.0)
    await one.lose()


async def test_the_head_timeout_does_not_end_a_request_in_progress(
    virtual_time: VirtualTime,
) -> None:
    one = Connection()
    await one.feed(GET)
    await asyncio.sleep(100)
    assert one.closed_after is None
    one.answer.set()
    await turns()
    assert one.status == b"HTTP/1.1 200 OK"
    await asyncio.sleep(4.9)
    assert one.closed_after is None, "still within the keep-alive timeout"
    await asyncio.sleep(0.2)
    assert one.closed_after == pytest.approx(105.0)
    await one.lose()


async def test_a_lost_connection_leaves_no_timers(virtual_time: VirtualTime) -> None:
    one = Connection()
    one.protocol.pause_writing()
    await one.lose()
    one.transport.closed_at = None
    await asyncio.sleep(200)
    assert (one.closed_after, one.transport.aborted) == (None, False)


@pytest.mark.parametrize(("extra", "fits"), [(0, True), (1, False)])
async def test_a_request_head_is_limited_to_64_kib(extra: int, fits: bool) -> None:
    one = Connection()
    value = b"v" * (MAX_HEAD - len("/x") - len("host") - len("here") - 4 - len("big") - 4 + extra)
    await one.feed(b"GET /x HTTP/1.1\r\nhost: here\r\n")
    one.protocol.other_bytes = 0
    one.protocol.data_received(b"big: " + value + b"\r\n\r\n")
    await turns()
    text = f"the request line and headers are over {MAX_HEAD} bytes"
    refused = refusal("431 Request Header Fields Too Large", text)
    assert one.transport.written == (b"" if fits else refused)
    assert len(one.requests) == fits
    await one.lose()


@pytest.mark.parametrize(("size", "status"), [(MAX_HEAD, b""), (MAX_HEAD + 1, b"HTTP/1.1 431")])
async def test_bytes_of_an_incomplete_request_head_count_towards_the_limit_as_they_arrive(
    size: int, status: bytes
) -> None:
    one = Connection()
    begin = b"GET /x HTTP/1.1\r\nbig: "
    await one.feed(begin)
    await one.feed(b"v" * (size - len(begin)))
    assert one.status[:12] == status
    await one.lose()


async def test_bytes_between_chunks_of_a_body_are_counted_from_the_last_chunk() -> None:
    one = Connection()
    await one.feed(b"POST /x HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(4):
        await one.feed(b"2;" + b"e" * 20_000)
        await one.feed(b"\r\nab\r\n")
    assert one.status == b""
    for _ in range(4):
        await one.feed(b"2;" + b"e" * 20_000 if not one.protocol.deaf else b"")
    assert one.status.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
    await one.lose()


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"GET /x HTTP/1.1\r\n\r\n", "expected exactly one Host header"),
        (b"GET /x HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n", "expected exactly one Host header"),
        (b"GET /x HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n", "expected exactly one Host header"),
        (b"nonsense\r\n\r\n", "invalid HTTP request"),
    ],
)
async def test_ambiguous_http_requests_are_refused(head: bytes, why: str) -> None:
    one = Connection()
    await one.feed(head)
    assert one.transport.written == refusal("400 Bad Request", why)
    assert (one.requests, one.protocol.deaf) == ([], True)
    await one.feed(GET)
    assert one.requests == [], "data after the refusal is ignored"
    await one.lose()


async def test_an_http_1_0_request_needs_no_host_header_and_gets_no_chunked_response() -> None:
    one = Connection()
    one.length = None
    one.answer.set()
    await one.feed(b"GET /x HTTP/1.0\r\n\r\n")
    assert one.transport.written == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nok"
    assert one.ends == ["answered"]
    assert one.closed_after is not None
    await one.lose()


async def test_a_head_method_request_of_http_1_0_gets_no_body() -> None:
    one = Connection()
    one.length = None
    one.answer.set()
    await one.feed(b"HEAD /x HTTP/1.0\r\n\r\n")
    assert one.transport.written == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    await one.lose()


async def test_an_unknown_protocol_upgrade_is_ignored() -> None:
    one = Connection()
    one.answer.set()
    head = b"POST /x HTTP/1.1\r\nhost: here\r\nconnection: upgrade\r\nupgrade: h2c\r\n"
    await one.feed(head + b"http2-settings: AA\r\nx-own: 1\r\ncontent-length: 3\r\n\r\nabc")
    assert one.bodies == [b"abc"]
    headers = [(b"host", b"here"), (b"x-own", b"1"), (b"content-length", b"3")]
    assert one.requests[0]["headers"] == headers
    assert one.closed_after is None
    await one.feed(GET)
    assert len(one.requests) == 2
    await one.lose()


async def test_an_ignored_upgrade_keeps_connection_close() -> None:
    one = Connection()
    one.answer.set()
    head = b"GET /x HTTP/1.1\r\nhost: here\r\nconnection: close, upgrade\r\nupgrade: h2c\r\n\r\n"
    await one.feed(head)
    assert (b"connection", b"close") in one.requests[0]["headers"]
    assert one.closed_after is not None
    await one.lose()


async def test_the_method_connect_is_refused() -> None:
    one = Connection()
    await one.feed(b"CONNECT there:443 HTTP/1.1\r\nhost: there\r\n\r\n")
    assert one.transport.written == refusal("405 Method Not Allowed", "this server is not a proxy")
    await one.lose()


async def test_trailers_of_a_request_body_are_dropped() -> None:
    one = Connection()
    await one.feed(b"POST /x HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n")
    await one.feed(b"2\r\nab\r\n0\r\nx-late: 1\r\n\r\n")
    assert one.bodies == [b"ab"]
    assert [name for name, _ in one.requests[0]["headers"]] == [b"host", b"transfer-encoding"]
    await one.lose()


# Bodies

POST = b"POST /x HTTP/1.1\r\nhost: here\r\ncontent-length: 1000000\r\n\r\n"
LATE = refusal("408 Request Timeout", "the body did not arrive in time")


@pytest.mark.parametrize(("sent", "seconds"), [(0, 30), (32 << 10, 31), (320 << 10, 40)])
async def test_a_body_has_30_seconds_plus_one_for_each_32_kib(
    virtual_time: VirtualTime, sent: int, seconds: float
) -> None:
    one = Connection()
    await one.feed(POST + b"x" * sent)
    one.protocol.flow.read_paused = False
    await asyncio.sleep(seconds - 0.1)
    assert one.transport.written == b""
    await asyncio.sleep(0.2)
    assert one.transport.written == LATE
    assert (one.transport.eof, one.closed_after) == (True, None)
    assert one.ends == ["disconnected"]
    await asyncio.sleep(5)
    assert one.closed_after == pytest.approx(seconds + 1.0), (
        "the client has one second to read the refusal"
    )
    await one.lose()


async def test_time_with_paused_reading_does_not_count_towards_the_body_timeout(
    virtual_time: VirtualTime,
) -> None:
    one = Connection()
    await one.feed(POST + b"x")
    one.protocol.flow.read_paused = True
    await asyncio.sleep(31)
    one.protocol.flow.read_paused = False
    await asyncio.sleep(28.9)
    assert one.transport.written == b""
    await asyncio.sleep(0.2)
    assert one.transport.written == LATE
    await one.lose()


async def test_the_body_timeout_can_be_disabled(virtual_time: VirtualTime) -> None:
    one = Connection()
    one.protocol.body_timeout = 0
    await one.feed(POST)
    await asyncio.sleep(1000)
    assert (one.transport.written, one.closed_after) == (b"", None)
    await one.lose()


async def test_the_body_of_a_second_request_has_its_own_timeout(virtual_time: VirtualTime) -> None:
    one = Connection()
    one.answer.set()
    first = b"x" * (320 << 10)
    await one.feed(b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % len(first))
    await one.feed(first)
    await one.feed(POST)
    one.transport.written = b""
    await asyncio.sleep(29.9)
    assert one.transport.written == b""
    await asyncio.sleep(0.2)
    assert one.transport.written == LATE
    await one.lose()


@pytest.mark.parametrize("is_tls", [False, True])
async def test_a_client_has_time_to_read_a_refusal_sent_during_its_body(
    virtual_time: VirtualTime, is_tls: bool
) -> None:
    one = Connection()
    one.transport.is_tls = is_tls  # TLS transports do not support `write_eof`
    await one.feed(b"POST /x HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n")
    one.transport.reading = False
    one.protocol.flow.read_paused = True
    await one.feed(b"no size\r\n")
    assert one.status == b"HTTP/1.1 400 Bad Request"
    assert (one.transport.eof, one.protocol.lingers) == (not is_tls, not is_tls)
    if is_tls:
        assert one.closed_after == 0
    else:
        assert one.transport.reading, "further data is read and dropped"
        assert one.closed_after is None
        await asyncio.sleep(5)
        assert one.closed_after == pytest.approx(1.0)
    await one.lose()


async def test_an_invalid_request_after_another_closes_after_its_response() -> None:
    one = Connection()
    await one.feed(GET)
    await one.feed(b"nonsense\r\n\r\n")
    assert (one.transport.written, one.closed_after) == (b"", None)
    one.answer.set()
    await turns()
    assert one.transport.written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"400" not in one.transport.written
    assert one.transport.eof
    await one.lose()


async def test_pipelined_requests_are_notified_of_a_disconnect() -> None:
    one = Connection()

    async def wait_for_the_end(receive: Any, send: Any) -> None:
        while (event := await receive())["type"] != "http.disconnect":
            pass
        one.ends.append(event["type"])

    one.script = wait_for_the_end
    await one.feed(GET + GET)
    assert len(one.requests) == 1
    one.protocol.connection_lost(None)
    await turns()
    assert one.ends == ["http.disconnect"]


async def start(send: Any, length: int = 2) -> None:
    headers = [(b"content-length", b"%d" % length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


CHUNKED = b"POST /x HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("before", ["another request", "half an answer"])
async def test_an_invalid_body_after_an_unfinished_response_closes_the_connection(
    before: str,
) -> None:
    one = Connection()

    async def answer_half(receive: Any, send: Any) -> None:
        if before == "half an answer":
            await start(send)
        await one.answer.wait()

    one.script = answer_half
    if before == "another request":
        await one.feed(GET)
    await one.feed(CHUNKED)
    written = one.transport.written
    await one.feed(b"no size\r\n")
    assert one.transport.written == written
    assert one.closed_after is not None
    assert b"400" not in one.transport.written
    await one.lose()


async def test_a_slow_body_after_the_response_closes_the_connection(
    virtual_time: VirtualTime,
) -> None:
    one = Connection()

    async def answer_at_once(receive: Any, send: Any) -> None:
        await start(send)
        await send({"type": "http.response.body", "body": b"ok"})

    one.script = answer_at_once
    hits = BODY_TIMEOUT.hits
    await one.feed(POST + b"x")
    assert one.status == b"HTTP/1.1 200 OK"
    written = one.transport.written
    await one.feed(b"x")  # keeps the request incomplete, so the connection is not idle
    await asyncio.sleep(29.9)
    assert one.closed_after is None
    await asyncio.sleep(0.2)
    assert one.closed_after == pytest.approx(30.0, abs=0.01)
    assert (one.transport.written, one.protocol.deaf) == (written, True)
    assert BODY_TIMEOUT.hits == hits + 1
    await one.lose()


async def test_an_upgraded_connection_has_no_http_timeouts(virtual_time: VirtualTime) -> None:
    one = Connection()
    upgraded: list[Upgraded] = []
    one.transport.set_protocol = upgraded.append  # type: ignore[method-assign,assignment]
    await one.feed(b"GET /x HTTP/1.1\r\nhost: here\r\n")
    rest = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\r\n"
    await one.feed(rest)
    assert b"upgrade: websocket" in upgraded[0].received.lower()
    await asyncio.sleep(100)
    assert (one.closed_after, one.transport.written) == (None, b"")


async def test_only_a_get_request_is_upgraded_to_websocket() -> None:
    one = Connection()
    one.answer.set()
    head = b"POST /x HTTP/1.1\r\nhost: here\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    await one.feed(head + b"content-length: 2\r\n\r\nab")
    assert one.bodies == [b"ab"]
    await one.lose()


@pytest.mark.parametrize("initiated", [True, False])
async def test_an_invalid_websocket_handshake_is_refused(
    monkeypatch: pytest.MonkeyPatch, initiated: bool
) -> None:
    monkeypatch.setattr(Upgraded, "handshake_initiated", initiated)
    one = Connection()

    def set_protocol(protocol: Any) -> None:
        one.transport.protocol = protocol

    one.transport.set_protocol = set_protocol  # type: ignore[method-assign]
    await one.feed(GET.removesuffix(b"\r\n") + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n")
    why = refusal("400 Bad Request", "invalid WebSocket handshake")
    assert one.transport.written == (b"" if initiated else why)
    assert (one.closed_after is None) == initiated


# HTTP/1.0

OLD = b"GET /x HTTP/1.0\r\n\r\n"


async def test_a_response_with_a_length_is_sent_unchanged_to_http_1_0() -> None:
    one = Connection()
    one.answer.set()
    await one.feed(OLD)
    head, _, body = one.transport.written.partition(b"\r\n\r\n")
    assert (head.count(b"content-length: 2"), head.count(b"connection: close")) == (1, 1)
    assert body == b"ok"
    assert (one.closed_after is not None, one.state.total_requests) == (True, 1)
    await one.lose()


async def test_a_stream_to_http_1_0_ends_with_the_connection() -> None:
    one = Connection()
    more = asyncio.Event()

    async def stream(receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"one,", "more_body": True})
        await more.wait()
        await send({"type": "http.response.body", "body": b"two,", "more_body": True})
        await send({"type": "http.response.body", "body": b"three"})

    one.script = stream
    await one.feed(OLD)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n"
    assert one.transport.written == head + b"one,"
    assert (one.closed_after, one.state.total_requests) == (None, 0)
    more.set()
    await turns()
    assert one.transport.written == head + b"one,two,three"
    assert (one.closed_after is not None, one.state.total_requests) == (True, 1)
    await one.lose()


async def test_http_1_0_reports_the_completed_response_to_the_application() -> None:
    one = Connection()

    async def stream(receive: Any, send: Any) -> None:
        await receive()
        listening = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"all"})
        one.ends.append((await listening)["type"])

    one.script = stream
    await one.feed(OLD)
    assert one.ends == ["http.disconnect"]
    await one.lose()


async def test_http_1_0_waits_for_a_slow_reader_and_stops_on_disconnect() -> None:
    one = Connection()
    sent: list[int] = []

    async def stream(receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(3):
            await send({"type": "http.response.body", "body": b"%d" % number, "more_body": True})
            sent.append(number)
            if not number:
                one.protocol.pause_writing()

    one.script = stream
    await one.feed(OLD)
    assert (sent, one.transport.written[-1:]) == ([0], b"0")
    one.protocol.connection_lost(None)
    one.protocol.resume_writing()
    await turns()
    assert (sent, one.transport.written[-1:]) == ([0, 1, 2], b"0")


# Readers


@pytest.mark.parametrize(
    ("left", "aborted"), [(0, False), (100_000 - (16 << 10), False), (100_001 - (16 << 10), True)]
)
async def test_a_client_must_read_16_kib_per_minute(
    virtual_time: VirtualTime, left: int, aborted: bool
) -> None:
    one = Connection()
    await one.feed(GET)
    one.transport.buffered = 100_000
    one.protocol.pause_writing()
    await asyncio.sleep(59.9)
    one.transport.buffered = left
    assert not one.transport.aborted
    await asyncio.sleep(0.2)
    assert one.transport.aborted is aborted
    if not aborted:
        await asyncio.sleep(59.7)
        assert not one.transport.aborted
        await asyncio.sleep(0.3)
        assert one.transport.aborted, "aborted after one minute without reading"
    await one.lose()


async def test_the_reader_timeout_ends_when_writing_resumes(virtual_time: VirtualTime) -> None:
    one = Connection()
    await one.feed(GET)
    one.transport.buffered = 100_000
    one.protocol.pause_writing()
    await asyncio.sleep(50)
    # Does not restart the time measured from the first `pause_writing`.
    one.protocol.pause_writing()
    one.protocol.resume_writing()
    await asyncio.sleep(200)
    assert not one.transport.aborted
    one.protocol.pause_writing()
    await asyncio.sleep(60.1)
    assert one.transport.aborted
    await one.lose()


@pytest.mark.parametrize(("extra", "status"), [(0, b""), (1, b"HTTP/1.1 431")])
async def test_trailers_are_counted_from_the_last_chunk_of_the_body(
    extra: int, status: bytes
) -> None:
    one = Connection()
    await one.feed(CHUNKED)
    await one.feed(b"2\r\nab\r\n")
    begin = b"0\r\nx: "
    await one.feed(begin)
    await one.feed(b"v" * (MAX_HEAD - len(begin) + extra))
    assert one.status[:12] == status
    await one.lose()
