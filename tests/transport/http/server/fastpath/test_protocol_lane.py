"""A fast-path connection without a socket: the requests it answers, and its timers."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from fairlead import MCPServer
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.envelope import TransportContext
from fairlead.server.http_app.app import HttpApp
from fairlead.transport.http.server.fastpath.protocol import FastPathProtocol, fast_path_protocol
from fairlead.transport.http.server.guarded_protocol import GuardedProtocol
from fairlead.transport.http.server.http_settings import HttpSettings
from fairlead.wire.sse import HEARTBEAT
from tests.support.fake_http_transport import FakeHttpTransport, turns
from tests.support.http_server import BOTH, META, Desk, call, introduction, make_server
from tests.support.virtual_time import VirtualTime

JSON = "application/json"
LIST = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": META}}
LIST_FIELDS = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
CALL_FIELDS = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}
USUAL = {"Host": "127.0.0.1", "Content-Type": JSON, "Accept": BOTH}


def head_of(
    fields: dict[str, str | None], length: int | None, line: str = "POST /mcp HTTP/1.1"
) -> bytes:
    """Return the head of a request; a header that is None is omitted."""
    sent = {**USUAL, **fields}
    if length is not None:
        sent = {"Content-Length": str(length), **sent}
    lines = [f"{name}: {value}" for name, value in sent.items() if value is not None]
    return "\r\n".join([line, *lines, "", ""]).encode()


def request(
    message: Any = LIST,
    fields: dict[str, str | None] | None = None,
    line: str = "POST /mcp HTTP/1.1",
) -> bytes:
    """Return one complete request, by default a stateless `tools/list`."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return head_of({**LIST_FIELDS, **(fields or {})}, len(body), line) + body


def stateless_call(tool: str) -> bytes:
    body = call(tool, **META)
    return request(body, {**CALL_FIELDS, "Mcp-Name": tool})


class Lane:
    """A connection to the test server that records which requests went through ASGI."""

    def __init__(self, app: HttpApp) -> None:
        self.app = app
        self.through_asgi: list[str] = []
        self.parsed = 0
        self.state = ServerState()
        lane = self

        class Counted(fast_path_protocol(app.edges, app.settings)):  # type: ignore[misc]
            def on_message_begin(self) -> None:
                lane.parsed += 1
                super().on_message_begin()

        options: Any = {"server_header": False, "date_header": False, "timeout_keep_alive": 5}
        config = Config(self._serve, interface="asgi3", lifespan="off", log_config=None, **options)
        config.load()
        self.protocol: FastPathProtocol = Counted(
            config=config, server_state=self.state, app_state={}
        )
        self.transport = FakeHttpTransport()
        self.transport.protocol = self.protocol
        self.protocol.connection_made(self.transport)

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        self.through_asgi.append(scope["path"])
        await self.app(scope, receive, send)

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.protocol.data_received(piece)
            await turns()

    def answers(self) -> list[tuple[int, dict[str, str], bytes]]:
        """Return the responses written since the last call: statuses, headers and bodies."""
        data, self.transport.written = self.transport.written, b""
        found = []
        while data:
            head, _, data = data.partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            if first == "HTTP/1.1 100 Continue":
                continue
            if "content-length" in headers:
                size = int(headers["content-length"])
                body, data = data[:size], data[size:]
            else:
                body, _, data = data.partition(b"0\r\n\r\n")
            found.append((int(first.split()[1]), headers, body))
        return found

    def statuses(self) -> list[int]:
        return [status for status, _, _ in self.answers()]

    async def asked(self, *pieces: bytes) -> tuple[list[int], bool]:
        """Send data; return the statuses of the responses and whether ASGI was involved."""
        self.through_asgi.clear()
        await self.send(*pieces)
        return self.statuses(), bool(self.through_asgi)

    async def open_session(self) -> dict[str, str | None]:
        """Open a session and return the headers of requests in it."""
        nothing: dict[str, str | None] = {"Mcp-Method": None, "MCP-Protocol-Version": None}
        await self.send(request(introduction(), nothing))
        ((_, headers, _),) = self.answers()
        fields = {
            "Mcp-Method": None,
            "Mcp-Session-Id": headers["mcp-session-id"],
            "MCP-Protocol-Version": "2025-11-25",
        }
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert await self.asked(request(ready, fields)) == ([202], True)
        return fields


@contextlib.asynccontextmanager
async def lane(desk: Desk | None = None, **settings: Any) -> AsyncIterator[Lane]:
    app = HttpApp(make_server(desk), HttpSettings(**settings))
    async with app.running():
        one = Lane(app)
        yield one
        one.protocol.connection_lost(None)
        await turns()


PING = {"jsonrpc": "2.0", "id": 3, "method": "ping"}


# Requests that are answered without ASGI


@pytest.mark.parametrize(
    ("fields", "status", "asgi"),
    [
        ({}, 200, False),
        ({"Accept": None}, 200, False),
        ({"Accept": "*/*"}, 200, False),
        ({"Accept": JSON}, 200, True),
        ({"Accept": "text/plain"}, 406, True),
        ({"Accept": f"{BOTH}, x/y"}, 200, True),
        ({"Content-Type": f"{JSON}; charset=utf-8"}, 200, True),
        ({"Content-Type": "text/plain"}, 415, True),
        ({"Content-Type": None}, 415, True),
        ({"Origin": "http://localhost"}, 200, True),
        ({"Prefer": "x"}, 200, True),
        ({"X-Correlation-Id": "x"}, 200, True),
        ({"Content-Encoding": "identity"}, 200, True),
        ({"Expect": "100-continue"}, 200, True),
        ({"Host": "evil.example"}, 403, True),
        ({"Host": "localhost:9"}, 200, False),
        ({"Connection": "close"}, 200, False),
        ({"Mcp-Method": "tools/call"}, 400, True),
        ({"MCP-Protocol-Version": "2030-01-01"}, 400, True),
        ({"Mcp-Session-Id": "another"}, 200, False),
    ],
)
async def test_requests_with_usual_heads_are_answered_without_asgi(
    fields: dict[str, str | None], status: int, asgi: bool
) -> None:
    async with lane() as one:
        assert await one.asked(request(fields=fields)) == ([status], asgi)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("POST /mcp HTTP/1.1", [200]),
        ("POST /mcp/ HTTP/1.1", [200]),
        ("POST /mcp?a=b HTTP/1.1", [200]),
        ("POST /other HTTP/1.1", [404]),
        ("POST /mcp HTTP/1.0", [200]),
        ("PUT /mcp HTTP/1.1", [405]),
        ("GET /mcp HTTP/1.1", [405]),
    ],
)
async def test_only_a_post_to_the_endpoint_is_answered_without_asgi(
    line: str, status: list[int]
) -> None:
    async with lane() as one:
        asgi = line != "POST /mcp HTTP/1.1"
        assert await one.asked(request(line=line)) == (status, asgi)


@pytest.mark.parametrize(
    ("message", "status", "asgi"),
    [
        (LIST, 200, False),
        ({**LIST, "method": "no/such"}, 400, True),  # the Mcp-Method header contradicts the body
        (PING, 400, True),  # has neither a session nor stateless metadata
        ({**LIST, "params": {"_meta": {}}}, 400, True),
        ({"jsonrpc": "2.0", "method": "tools/list", "params": {"_meta": META}}, 202, True),
        ([LIST], 400, True),
        (b"no json", 400, True),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, 400, True),
    ],
    ids=["list", "other", "ping", "bare", "notification", "batch", "noise", "response"],
)
async def test_only_a_valid_stateless_request_is_answered_without_asgi(
    message: Any, status: int, asgi: bool
) -> None:
    async with lane() as one:
        assert await one.asked(request(message)) == ([status], asgi)
        assert await one.asked(request(message)) == ([status], asgi)


@pytest.mark.parametrize(("count", "asgi"), [(40, False), (41, True)])
async def test_a_request_head_with_many_fields_goes_through_asgi(count: int, asgi: bool) -> None:
    known = head_of({**LIST_FIELDS}, 0).count(b"\r\n") - 2
    more = {f"X-{number}": "1" for number in range(count - known)}
    async with lane() as one:
        assert await one.asked(request(fields={**more})) == ([200], asgi)


@pytest.mark.parametrize("name", ["Content-Type", "X-A"])
async def test_a_repeated_header_goes_through_asgi(name: str) -> None:
    async with lane() as one:
        twice = request(fields={"X-A": "1"}).replace(b"X-A", name.encode() + b": a\r\nX-A", 1)
        assert twice.count(name.encode()) == 2
        assert (await one.asked(twice))[1]


@pytest.mark.parametrize(("size", "asgi"), [(64 << 10, False), ((64 << 10) + 1, True)])
async def test_a_large_first_chunk_goes_through_asgi(size: int, asgi: bool) -> None:
    async with lane() as one:
        plain = len(request({**LIST, "pad": ""}))
        body = json.dumps({**LIST, "pad": "x" * (size - plain - 3)}).encode()
        piece = request(body)
        piece = request(body + b" " * (size - len(piece)))
        assert len(piece) == size
        assert await one.asked(piece) == ([200], asgi)


@pytest.mark.parametrize(("chunks", "asgi"), [(1, False), (16, False), (17, True)])
async def test_a_body_of_many_chunks_goes_through_asgi(chunks: int, asgi: bool) -> None:
    body = json.dumps(LIST).encode()
    async with lane() as one:
        pieces = [body[n : n + 1] for n in range(chunks - 1)] + [body[chunks - 1 :]]
        assert await one.asked(head_of({**LIST_FIELDS}, len(body)), *pieces) == ([200], asgi)
        assert await one.asked(request()) == ([200], False)


@pytest.mark.parametrize(("extra", "status", "asgi"), [(0, 200, False), (1, 413, True)])
async def test_a_body_over_the_limit_goes_through_asgi(extra: int, status: int, asgi: bool) -> None:
    body = json.dumps(LIST).encode() + b" " * extra
    async with lane(max_body=len(body) - extra) as one:
        assert await one.asked(head_of({**LIST_FIELDS}, len(body)), body) == ([status], asgi)
    async with lane(max_body=len(body) - extra) as one:
        chunked = head_of({**LIST_FIELDS, "Transfer-Encoding": "chunked"}, None)
        piece = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        assert await one.asked(chunked, piece) == ([status], asgi)


async def test_a_body_that_will_be_over_the_limit_is_refused_before_it_is_sent() -> None:
    async with lane(max_body=1000) as one:
        assert await one.asked(head_of({**LIST_FIELDS}, 1001)) == ([413], True)
        assert one.transport.eof
    async with lane(max_body=1000) as one:
        assert await one.asked(head_of({**LIST_FIELDS}, 1000)) == ([], False)


async def test_a_client_that_does_not_read_goes_through_asgi() -> None:
    async with lane() as one:
        assert await one.asked(request()) == ([200], False)
        one.protocol.pause_writing()
        assert await one.asked(request()) == ([], True)
        one.protocol.resume_writing()
        await turns()
        assert one.statuses() == [200]
        assert await one.asked(request()) == ([200], False)


async def test_a_token_is_verified_before_the_body_is_buffered() -> None:
    def verify(token: str) -> str | None:
        if token == "bad luck":
            raise ValueError("boom")
        return {"good": "me", "hidden": "you"}.get(token)

    async with lane(verify_token=verify) as one:
        one.app.edge.hides = lambda who: who == "you"
        for token, status, asgi in [
            ("good", 200, False),
            ("hidden", 404, True),
            ("good", 200, False),
        ]:
            fields: dict[str, str | None] = {"Authorization": f"Bearer {token}"}
            assert await one.asked(request(fields=fields)) == ([status], asgi)
        assert await one.asked(request(fields={"Authorization": "Bearer bad"})) == ([401], False)
    async with lane(verify_token=verify) as one:
        head = head_of({**LIST_FIELDS, "Authorization": "Bearer bad"}, 100)
        assert await one.asked(head) == ([401], False), "refused before the body was received"
    async with lane(verify_token=verify) as one:
        fields = {"Authorization": "Bearer bad luck"}
        assert await one.asked(request(fields=fields)) == ([503], False)


@pytest.mark.parametrize("earlier", [0, 2])
async def test_an_invalid_token_gets_the_same_response_with_and_without_asgi(earlier: int) -> None:
    """The rest of the body and requests after it are ignored."""
    responses = []
    for fast_path in (True, False):
        async with lane(auth_token="good", fast_path=fast_path) as one:
            good: dict[str, str | None] = {"Authorization": "Bearer good"}
            for _ in range(earlier):
                assert await one.asked(request(fields=good)) == ([200], not fast_path)
            one.through_asgi.clear()
            head = head_of({**LIST_FIELDS, "Authorization": "Bearer bad"}, 100)
            await one.send(head + b"{" * 10)
            responses += one.answers()
            assert bool(one.through_asgi) is not fast_path
            assert await one.asked(b"{" * 90, request(fields=good)) == ([], False)
            assert one.state.total_requests == earlier + 1
    assert responses[0] == responses[1]
    assert responses[0][1]["connection"] == "close"


# Known heads


async def test_identical_request_heads_are_parsed_once_and_not_sent_through_asgi() -> None:
    async with lane() as one:
        for number in range(3):
            await one.send(request({**LIST, "id": number + 1}))
            ((status, headers, body),) = one.answers()
            assert (status, json.loads(body)["id"]) == (200, number + 1)
            assert headers == {"content-type": JSON, "content-length": str(len(body))}
        assert (one.parsed, one.through_asgi) == (1, [])
        assert one.state.total_requests == 3


@pytest.mark.parametrize("count", [8, 9])
async def test_at_most_eight_heads_are_cached_per_connection(count: int) -> None:
    heads = [request(fields={"X-Number": str(number)}) for number in range(count)]
    async with lane() as one:
        for head in heads:
            assert await one.asked(head) == ([200], False)
        assert one.parsed == count
        await one.send(*heads[1:])
        assert one.parsed == count
        await one.send(heads[0])
        assert one.parsed == (count if count <= 8 else count + 1)
        assert one.statuses() == [200] * count


@pytest.mark.parametrize(("size", "parsed"), [(4096, 1), (4097, 2)])
async def test_long_request_heads_are_not_cached(size: int, parsed: int) -> None:
    body = json.dumps(LIST).encode()
    short = len(head_of({**LIST_FIELDS, "X-Pad": ""}, len(body)))
    fields = {**LIST_FIELDS, "X-Pad": "x" * (size - short)}
    head = head_of({**fields}, len(body))
    assert len(head) == size
    async with lane() as one:
        assert await one.asked(head + body, head + body) == ([200, 200], False)
        assert one.parsed == parsed


async def test_heads_of_split_and_chunked_requests_are_not_cached() -> None:
    body = json.dumps(LIST).encode()
    head = head_of({**LIST_FIELDS}, len(body))
    chunked = head_of({**LIST_FIELDS, "Transfer-Encoding": "chunked"}, None)
    chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with lane() as one:
        assert await one.asked(head, body) == ([200], False)
        assert await one.asked(head + body) == ([200], False)
        assert one.parsed == 2
        for _ in range(2):
            assert await one.asked(chunked + chunk) == ([200], False)
        assert one.parsed == 4


async def test_two_requests_in_one_chunk_are_both_answered() -> None:
    async with lane() as one:
        await one.asked(request())
        await one.send(request({**LIST, "id": 1}) + request({**LIST, "id": 2}))
        assert [json.loads(body)["id"] for _, _, body in one.answers()] == [1, 2]
        assert one.parsed == 3
        await one.send(request() + b"POST /mcp HT", request().removeprefix(b"POST /mcp HT"))
        assert one.statuses() == [200, 200]
        assert one.parsed == 5


async def test_a_body_that_is_not_json_goes_through_asgi_even_if_its_head_is_cached() -> None:
    async with lane() as one:
        assert await one.asked(request()) == ([200], False)
        size = len(json.dumps(LIST))
        assert await one.asked(request(b"x" * size)) == ([400], True)
        assert await one.asked(request()) == ([200], False)


async def test_pipelined_requests_with_cached_heads_are_answered_in_order() -> None:
    desk = Desk()
    async with lane(desk) as one:
        assert await one.asked(request()) == ([200], False)
        assert await one.asked(stateless_call("wait")) == ([], False)
        assert await one.asked(request()) == ([], False)
        desk.go_on.set()
        await turns(30)
        bodies = [json.loads(body) for _, _, body in one.answers()]
        assert [body["id"] for body in bodies] == [7, 7]
        assert "tools" in bodies[1]["result"]
        assert one.state.total_requests == 3


# Timeouts


async def test_an_idle_connection_is_closed_after_five_seconds(
    virtual_time: VirtualTime,
) -> None:
    async with lane() as one:
        begun = virtual_time.now
        for _ in range(3):
            assert await one.asked(request()) == ([200], False)
            assert one.protocol.waits_for_next
            await asyncio.sleep(4.9)
            assert one.transport.closed_at is None
        await asyncio.sleep(0.2)
        assert one.transport.closed_at == pytest.approx(begun + 2 * 4.9 + 5.0)


async def test_a_started_request_ends_the_keep_alive_timeout(virtual_time: VirtualTime) -> None:
    async with lane() as one:
        await one.asked(request())
        await asyncio.sleep(4)
        begun = virtual_time.now
        await one.send(request()[:20])
        assert not one.protocol.waits_for_next
        await asyncio.sleep(9.9)
        assert one.transport.closed_at is None
        await asyncio.sleep(0.2)
        assert one.transport.closed_at == pytest.approx(begun + 10.0), "closed by the head timeout"


async def test_a_blank_line_before_a_cached_head_does_not_close_the_connection(
    virtual_time: VirtualTime,
) -> None:
    async with lane() as one:
        await one.asked(request())
        await one.send(b"\r\n")
        for _ in range(4):
            assert await one.asked(request()) == ([200], False)
            await asyncio.sleep(4.9)
            assert one.transport.closed_at is None
        assert one.parsed == 1
        await one.send(b"\r\n")
        await asyncio.sleep(10.1)
        assert one.transport.closed_at is not None


@pytest.mark.parametrize("between", [True, False], ids=["asgi", "lane"])
async def test_the_keep_alive_timeout_does_not_affect_a_later_call(
    virtual_time: VirtualTime, between: bool
) -> None:
    desk = Desk()
    desk.go_on.set()
    async with lane(desk, heartbeat=0) as one:
        assert await one.asked(stateless_call("wait")) == ([200], False)
        if between:
            assert await one.asked(request(line="POST /other HTTP/1.1")) == ([404], True)
        desk.go_on.clear()
        await asyncio.sleep(4)
        parsed = one.parsed
        assert await one.asked(stateless_call("wait")) == ([], False)
        await asyncio.sleep(4)
        assert (one.parsed, one.transport.closed_at) == (parsed, None)
        desk.go_on.set()
        await turns()
        assert one.statuses() == [200]


async def test_pipelined_requests_leave_no_heartbeat_timer(virtual_time: VirtualTime) -> None:
    desk = Desk()
    async with lane(desk, heartbeat=2.0) as one:
        fields = await one.open_session()
        await one.send(request(call("wait"), fields), request(line="POST /other HTTP/1.1"))
        assert one.statuses() == []
        desk.go_on.set()
        await turns(30)
        assert one.statuses() == [200, 404]
        await asyncio.sleep(4.9)
        assert one.transport.closed_at is None
        await asyncio.sleep(0.2)
        assert one.transport.closed_at is not None


@pytest.mark.parametrize(("sent", "seconds"), [(0, 30), (320 << 10, 40)])
async def test_a_slow_body_has_the_same_timeout_as_through_asgi(
    virtual_time: VirtualTime, sent: int, seconds: float
) -> None:
    async with lane() as one:
        await one.send(head_of({**LIST_FIELDS}, 1 << 20))
        if sent:
            await one.send(b" " * sent)
        await asyncio.sleep(seconds - 0.1)
        assert one.transport.written == b""
        await asyncio.sleep(0.2)
        assert one.statuses() == [408]


async def test_a_call_in_progress_is_not_ended_by_the_keep_alive_timeout(
    virtual_time: VirtualTime,
) -> None:
    desk = Desk()
    async with lane(desk, heartbeat=0) as one:
        await one.asked(request())
        assert await one.asked(stateless_call("wait")) == ([], False)
        assert not one.protocol.waits_for_next
        await asyncio.sleep(50)
        assert (one.transport.written, one.transport.closed_at) == (b"", None)
        desk.go_on.set()
        await turns()
        assert one.statuses() == [200]
        await asyncio.sleep(5.1)
        assert one.transport.closed_at is not None


async def test_heartbeats_are_sent_during_a_long_call(virtual_time: VirtualTime) -> None:
    desk = Desk()
    async with lane(desk, heartbeat=15.0) as one:
        await one.asked(stateless_call("wait"))
        await asyncio.sleep(14.9)
        assert one.transport.written == b""
        await asyncio.sleep(0.2)
        assert one.transport.written.count(HEARTBEAT) == 1
        one.protocol.pause_writing()
        await asyncio.sleep(15)
        assert one.transport.written.count(HEARTBEAT) == 1, "no heartbeat while writing is paused"
        one.protocol.resume_writing()
        await asyncio.sleep(15)
        assert one.transport.written.count(HEARTBEAT) == 2
        desk.go_on.set()
        await turns()
        ((status, headers, body),) = one.answers()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        assert b"waited" in body
        assert one.protocol.waits_for_next


# End of calls and connections


async def test_a_call_cancelled_by_a_shutdown_is_answered_with_500() -> None:
    desk = Desk()
    async with lane(desk) as one:
        await one.asked(stateless_call("wait"))
        (task,) = one.protocol.tasks
        task.cancel()
        await turns()
        ((status, headers, body),) = one.answers()
        assert (status, "retry-after" in headers, headers["connection"]) == (500, False, "close")
        assert body.endswith(b": the server was stopped before it completed the request\n")
        assert one.transport.closed_at is not None
        assert one.protocol.tasks == set()


async def test_a_disconnect_cancels_a_stateless_call() -> None:
    desk = Desk()
    async with lane(desk) as one:
        await one.asked(stateless_call("wait"))
        assert not desk.cancelled.is_set()
        one.protocol.connection_lost(None)
        await turns()
        assert desk.cancelled.is_set()
        assert (one.transport.written, one.protocol.tasks) == (b"", set())


async def test_a_request_with_connection_close_is_answered_before_closing() -> None:
    async with lane() as one:
        await one.send(request(fields={"Connection": "close"}))
        ((status, headers, _),) = one.answers()
        assert (status, headers["connection"]) == (200, "close")
        assert one.transport.closed_at is not None
        assert one.parsed == 1


async def test_a_lost_connection_leaves_no_timer(virtual_time: VirtualTime) -> None:
    async with lane() as one:
        await one.asked(request())
        one.protocol.connection_lost(None)
        one.transport.closed_at = None
        await asyncio.sleep(20)
        assert one.transport.closed_at is None
        assert not one.protocol.waits_for_next


async def test_interceptors_receive_the_transport_context_of_a_fast_path_request() -> None:
    seen: list[TransportContext] = []

    async def look(exchange: Exchange, proceed: Proceed) -> Answer:
        seen.append(exchange.transport)
        return await proceed(exchange)

    server = MCPServer(make_server().config, interceptors=[look])
    app = HttpApp(server, HttpSettings())
    async with app.running():
        one = Lane(app)
        assert await one.asked(request()) == ([200], False)
        one.protocol.connection_lost(None)
    (context,) = seen
    assert (context.transport_type, context.path) == ("http", "/mcp")
    assert (context.peer_address, context.headers["Mcp-Method"]) == ("127.0.0.1", "tools/list")


# Requests in a session


async def test_a_request_in_a_session_is_answered_without_asgi() -> None:
    async with lane() as one:
        fields = await one.open_session()
        await one.send(request(PING, fields))
        assert one.transport.written == (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 36\r\n\r\n"
            b'{"jsonrpc":"2.0","id":3,"result":{}}'
        )
        one.answers()
        for number in range(3):
            assert await one.asked(request({**PING, "id": number}, fields)) == ([200], False)
        parsed = one.parsed
        await one.send(request(call("add", {"a": 1, "b": 2}), fields))
        ((status, headers, body),) = one.answers()
        assert (status, headers["content-type"]) == (200, JSON)
        assert json.loads(body)["result"]["content"][0]["text"] == "3"
        assert one.parsed == parsed + 1
        assert await one.asked(request({**PING, "id": 9}, fields)) == ([200], False)
        assert one.parsed == parsed + 1


@pytest.mark.parametrize(
    ("message", "more", "status", "asgi"),
    [
        (PING, {}, 200, False),
        (introduction(), {}, 200, True),
        (PING, {"Mcp-Session-Id": "another"}, 404, True),
        (PING, {"MCP-Protocol-Version": "2030-01-01"}, 400, True),
        (PING, {"MCP-Protocol-Version": None}, 200, False),
        ({"jsonrpc": "2.0", "method": "notifications/x"}, {}, 202, True),
        (LIST, {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}, 200, False),
        (b'{"jsonrpc":"2.0","id":"\\u0031","method":"ping"}', {}, 200, False),
        ({**PING, "params": {"_meta": {"io.modelcontextprotocol/x": 1}}}, {}, 200, False),
    ],
    ids=[
        *("ping", "initialize", "unknown", "bad version", "no version", "notification"),
        *("stateless", "escaped", "own name"),
    ],
)
async def test_only_valid_requests_in_a_session_are_answered_without_asgi(
    message: Any, more: dict[str, str | None], status: int, asgi: bool
) -> None:
    async with lane() as one:
        fields = await one.open_session()
        for _ in range(2):
            assert await one.asked(request(message, {**fields, **more})) == ([status], asgi)


@pytest.mark.parametrize(("written", "escaped"), [("/", "\\/"), ("io", "\\u0069o"), ("io", "io")])
async def test_headers_of_a_stateless_request_with_a_session_id_are_compared(
    written: str, escaped: str
) -> None:
    """The names of its metadata may be written with escapes."""
    async with lane() as one:
        fields = await one.open_session()
        prefix = "io.modelcontextprotocol/"
        text = json.dumps(call("add", {"a": 1, "b": 2}, **META))
        text = text.replace(prefix, prefix.replace(written, escaped))
        wrong = {**fields, **CALL_FIELDS, "Mcp-Name": "other"}
        assert await one.asked(request(text.encode(), wrong)) == ([400], True)


async def test_a_request_id_in_use_is_refused_through_asgi() -> None:
    desk = Desk()
    async with lane(desk) as one:
        fields = await one.open_session()
        assert await one.asked(request(call("wait"), fields)) == ([], False)
        other = Lane(one.app)
        assert await other.asked(request(call("add", {"a": 1, "b": 1}), fields)) == ([400], True)
        desk.go_on.set()
        await turns()
        assert one.statuses() == [200]
        other.protocol.connection_lost(None)


async def test_progress_turns_the_response_into_a_stream() -> None:
    async with lane() as one:
        fields = await one.open_session()
        await one.asked(request(call("steps", {}, 8, progressToken=1), fields))
        await one.send(request(call("steps", {}, 9, progressToken=1), fields))
        ((status, headers, body),) = one.answers()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        assert body.count(b"notifications/progress") == 2
        assert b'"id":9' in body
        assert one.through_asgi == []


async def test_a_cancelled_request_is_answered_with_an_error() -> None:
    desk = Desk()
    async with lane(desk) as one:
        fields = await one.open_session()
        await one.asked(request(call("wait"), fields))
        other = Lane(one.app)
        params = {"requestId": 7}
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        assert await other.asked(request(note, fields)) == ([202], True)
        await turns()
        assert desk.cancelled.is_set()
        ((status, headers, body),) = one.answers()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        event = json.loads(body.rpartition(b"data: ")[2])
        assert event["error"] == {"code": -32800, "message": "Request cancelled"}
        other.protocol.connection_lost(None)


async def test_a_long_request_in_a_session_becomes_a_stream_at_the_first_heartbeat(
    virtual_time: VirtualTime,
) -> None:
    desk = Desk()
    async with lane(desk, heartbeat=15.0) as one:
        fields = await one.open_session()
        await one.asked(request(call("wait"), fields))
        await asyncio.sleep(14.9)
        assert one.transport.written == b""
        await asyncio.sleep(0.2)
        assert b"text/event-stream" in one.transport.written
        await asyncio.sleep(15.1)
        assert one.transport.written.count(HEARTBEAT) == 1
        desk.go_on.set()
        await turns()
        ((status, _, body),) = one.answers()
        assert status == 200
        assert b"waited" in body


async def test_no_stream_is_started_for_a_long_request_if_heartbeats_are_disabled(
    virtual_time: VirtualTime,
) -> None:
    desk = Desk()
    async with lane(desk, heartbeat=0) as one:
        fields = await one.open_session()
        await one.asked(request(call("wait"), fields))
        await asyncio.sleep(50)
        assert one.transport.written == b""
        desk.go_on.set()
        await turns()
        assert one.statuses() == [200]


async def test_a_disconnect_does_not_cancel_a_call_in_a_session() -> None:
    desk = Desk()
    async with lane(desk) as one:
        fields = await one.open_session()
        await one.asked(request(call("wait"), fields))
        one.protocol.connection_lost(None)
        await turns()
        assert not desk.cancelled.is_set()
        other = Lane(one.app)
        assert (await other.asked(request(call("add"), fields)))[0] == [400], "still in use"
        desk.go_on.set()
        await turns()
        assert (await other.asked(request(call("add"), fields)))[0] == [200]
        assert one.transport.written == b""
        other.protocol.connection_lost(None)


async def test_responses_in_a_session_are_streams_if_answers_is_sse() -> None:
    async with lane(answers="sse") as one:
        fields = await one.open_session()
        one.through_asgi.clear()
        await one.send(request(PING, fields), request(PING, fields))
        answers = one.answers()
        assert len(answers) == 2
        for status, headers, body in answers:
            assert (status, headers["content-type"]) == (200, "text/event-stream")
            assert b'data: {"jsonrpc":"2.0","id":3,"result":{}}' in body
        assert one.through_asgi == []


async def test_connection_close_is_honoured_in_a_session() -> None:
    async with lane() as one:
        fields = await one.open_session()
        await one.send(request(PING, {**fields, "Connection": "close"}))
        ((status, headers, _),) = one.answers()
        assert (status, headers["connection"]) == (200, "close")
        assert one.transport.closed_at is not None


# Choice of the protocol class


@pytest.mark.parametrize(
    ("settings", "fast"),
    [
        ({}, True),
        ({"fast_path": False}, False),
        ({"error_status": "mapped"}, False),
        ({"sse_dialect": "fragments"}, False),
        ({"answers": "sse"}, True),
    ],
)
def test_the_http_settings_select_the_protocol_class_of_uvicorn(
    settings: dict[str, Any], fast: bool
) -> None:
    made = fast_path_protocol({}, HttpSettings(body_timeout=3.0, **settings))
    assert issubclass(made, FastPathProtocol) == fast
    assert issubclass(made, GuardedProtocol)
    assert made.body_timeout == 3.0
