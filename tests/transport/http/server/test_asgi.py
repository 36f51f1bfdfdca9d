"""One HTTP request over ASGI: body, response, and disconnects."""

import asyncio
from typing import Any

import pytest

from fairlead.errors import ChannelClosed
from fairlead.limits import BODY_TIMEOUT
from fairlead.transport.http.server.asgi import (
    BODY_TIMED,
    AsgiCall,
    BodyTimeout,
    BodyTooLarge,
    HeaderMap,
    has_body,
    has_json,
)
from tests.support.virtual_time import VirtualTime


class Call(AsgiCall):
    """A call whose events the test provides."""

    def __init__(self, *events: dict[str, Any], scope: Any = None, **headers: str) -> None:
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for event in events:
            self.events.put_nowait(event)
        self.sent: list[dict[str, Any]] = []
        fields = [
            (name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()
        ]
        usual = {"method": "POST", "path": "/mcp", "headers": fields, "client": ("10.0.0.1", 5)}

        async def send(event: Any) -> None:
            self.sent.append(event)

        super().__init__({**usual, **(scope or {})}, self.events.get, send)


def part(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


GONE = {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/vnd.x+json", True),
        ("text/json", False),
        ("text/x+json", False),
        ("application/jsonx", False),
        ("application/xml", False),
        (None, False),
    ],
)
def test_json_bodies_are_recognised_by_their_content_type(kind: str | None, expected: bool) -> None:
    assert has_json({} if kind is None else {b"content-type": kind.encode()}) is expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, False),
        ({b"content-length": b"0"}, False),
        ({b"content-length": b"1"}, True),
        ({b"transfer-encoding": b"chunked"}, True),
        ({b"content-length": b"0", b"transfer-encoding": b"chunked"}, True),
    ],
)
def test_the_headers_indicate_whether_a_body_follows(
    headers: dict[bytes, bytes], expected: bool
) -> None:
    assert has_body(headers) is expected


def test_headers_are_case_insensitive() -> None:
    headers = HeaderMap({b"x-a": "ü".encode("latin-1"), b"b": b"2"})
    assert (headers["X-A"], dict(headers), len(headers)) == ("ü", {"x-a": "ü", "b": "2"}, 2)
    with pytest.raises(KeyError):
        headers["c"]


async def test_a_call_has_the_attributes_of_its_asgi_scope() -> None:
    call = Call(x_a="1")
    assert (call.method, call.path, call.client, call.server) == ("POST", "/mcp", "10.0.0.1", None)
    assert (call.gone, call.started, call.body_timeout) == (False, False, 30)
    context = call.context
    assert (context.transport_type, context.path, context.peer_address) == (
        "http",
        "/mcp",
        "10.0.0.1",
    )
    assert context.headers is not None
    assert context.headers["x-a"] == "1"
    timed = Call(scope={BODY_TIMED: True, "client": None})
    assert (timed.body_timeout, timed.client) == (0.0, None)


@pytest.mark.parametrize(
    ("events", "headers", "limit", "body"),
    [
        ([part(b"")], {}, 0, b""),
        ([part(b"abc")], {}, 3, b"abc"),
        ([part(b"ab", True), part(b"c")], {}, 3, b"abc"),
        ([part(b"ab", True), part(b"", True), part(b"c")], {}, 3, b"abc"),
        ([{"type": "http.request"}], {}, 3, b""),
        ([part(b"abc")], {"content_length": "3"}, 3, b"abc"),
        ([part(b"abcd")], {}, 3, None),
        ([part(b"ab", True), part(b"cd", True)], {}, 3, None),
        ([], {"content_length": "4"}, 3, None),
        ([], {"content_length": "-1"}, 3, None),
        ([], {"content_length": "x"}, 3, None),
    ],
)
async def test_a_body_is_read_up_to_its_limit(
    events: list[dict[str, Any]], headers: dict[str, str], limit: int, body: bytes | None
) -> None:
    call = Call(*events, **headers)
    if body is None:
        with pytest.raises(BodyTooLarge):
            await call.body(limit)
    else:
        assert await call.body(limit) == body


async def test_a_disconnect_before_the_end_of_the_body_raises_an_error() -> None:
    with pytest.raises(ChannelClosed, match="the client disconnected"):
        await Call(part(b"a", True), GONE).body(9)


@pytest.mark.parametrize(("sent", "seconds"), [(0, 30.0), (32 << 10, 31.0), (96 << 10, 33.0)])
async def test_the_timeout_of_a_body_grows_with_its_size(
    virtual_time: VirtualTime, sent: int, seconds: float
) -> None:
    call = Call(part(bytes(sent), True)) if sent else Call()
    begun, hits = virtual_time.now, BODY_TIMEOUT.hits
    with pytest.raises(BodyTimeout):
        await call.body(1 << 20)
    assert virtual_time.now - begun == pytest.approx(seconds)
    assert BODY_TIMEOUT.hits == hits + 1


async def test_the_body_timeout_is_disabled_if_the_asgi_server_measures_it(
    virtual_time: VirtualTime,
) -> None:
    call = Call(scope={BODY_TIMED: True})
    asyncio.get_running_loop().call_later(500, call.events.put_nowait, part(b"late"))
    assert await call.body(9) == b"late"


# Responses


async def test_a_response_has_the_given_headers_and_the_headers_for_its_body() -> None:
    call = Call()
    call.extra = ((b"x-extra", b"1"),)
    await call.answer(200, b"{}", headers=[(b"x-own", b"2")])
    fields = [
        (b"content-length", b"2"),
        (b"x-own", b"2"),
        (b"x-extra", b"1"),
        (b"content-type", b"application/json"),
    ]
    assert call.sent == [
        {"type": "http.response.start", "status": 200, "headers": fields},
        {"type": "http.response.body", "body": b"{}"},
    ]
    assert call.started
    bare = Call()
    await bare.answer_now(202, b"")
    assert bare.sent[0]["headers"] == [(b"content-length", b"0")]


@pytest.mark.parametrize(
    ("how", "status", "text", "header"),
    [
        (
            "reject_slow_body",
            408,
            "408 Request Timeout: the body did not arrive in time\n",
            (b"connection", b"close"),
        ),
        (
            "give_up",
            500,
            "500 Internal Server Error: the server was stopped before it completed the request\n",
            (b"content-type", b"text/plain; charset=utf-8"),
        ),
    ],
)
async def test_http_errors_are_sent_as_plain_text(
    how: str, status: int, text: str, header: tuple[bytes, bytes]
) -> None:
    call = Call()
    await getattr(call, how)()
    start, body = call.sent
    assert (start["status"], body["body"].decode()) == (status, text)
    assert header in start["headers"]
    assert (b"content-type", b"text/plain; charset=utf-8") in start["headers"]


async def test_giving_up_a_request_ends_a_stream_that_was_already_opened() -> None:
    call = Call()
    call.extra = ((b"x-own", b"1"),)
    await call.open_stream()
    await call.write(b"data")
    await call.give_up()
    assert call.started
    assert (b"content-type", b"text/event-stream") in call.sent[0]["headers"]
    assert (b"x-own", b"1") in call.sent[0]["headers"]
    assert call.sent[1:] == [
        {"type": "http.response.body", "body": b"data", "more_body": True},
        {"type": "http.response.body", "body": b""},
    ]


# Disconnects


class Watched:
    def __init__(self, every: float = 0.0) -> None:
        self.call = Call()
        self.left = 0
        self.beats: list[float] = []
        self.slow = asyncio.Event()
        self.slow.set()
        self.call.watch(self._leave, self._beat, every)

    def _leave(self) -> None:
        self.left += 1

    async def _beat(self) -> None:
        self.beats.append(asyncio.get_running_loop().time())
        await self.slow.wait()


async def test_a_client_disconnect_is_reported_to_the_callback(virtual_time: VirtualTime) -> None:
    watched = Watched()
    watched.call.events.put_nowait(part(b"", False))
    watched.call.events.put_nowait(GONE)
    await asyncio.sleep(0.019)
    assert (watched.left, watched.call.gone) == (0, False)
    await asyncio.sleep(0.01)
    assert (watched.left, watched.call.gone, watched.beats) == (1, True, [])


async def test_heartbeats_are_sent_at_an_interval_until_unwatch(virtual_time: VirtualTime) -> None:
    watched = Watched(every=15)
    begun = virtual_time.now
    await asyncio.sleep(50)
    assert [at - begun for at in watched.beats] == pytest.approx([15.02, 30.02, 45.02])
    watched.call.unwatch()
    watched.call.unwatch()
    await asyncio.sleep(50)
    assert len(watched.beats) == 3
    watched.call.events.put_nowait(GONE)
    await asyncio.sleep(1)
    assert (watched.left, watched.call.gone) == (0, False), "disconnects are ignored after unwatch"


async def test_no_heartbeat_is_sent_while_the_previous_heartbeat_is_unread(
    virtual_time: VirtualTime,
) -> None:
    watched = Watched(every=15)
    watched.slow.clear()
    await asyncio.sleep(50)
    assert len(watched.beats) == 1
    watched.slow.set()
    await asyncio.sleep(15)
    assert len(watched.beats) == 2
    watched.call.unwatch()


async def test_a_call_that_ends_immediately_is_not_watched(virtual_time: VirtualTime) -> None:
    watched = Watched(every=1)
    watched.call.events.put_nowait(GONE)
    watched.call.unwatch()
    await asyncio.sleep(10)
    assert (watched.left, watched.beats) == (0, [])
