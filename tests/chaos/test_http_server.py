"""Clients that violate HTTP or use unusual features, with the fast path and with ASGI."""

import asyncio
import contextlib
import gzip
import json
import logging
import random
import socket
import ssl
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fairlead.server.http_app.uvicorn_runner as run_http
import fairlead.transport.http.server.guarded_protocol as connection
from fairlead.server.http_app.request_drain import DrainPlan
from tests.support.http_server import META, Desk, introduction, make_server, serving, stateless
from tests.support.raw_http_client import ADD, Line, ask, chunked, line_to, program, request

WAIT: dict[str, Any] = {"name": "wait", "arguments": {}}
STEPS: dict[str, Any] = {"name": "steps", "arguments": {"n": 3}}

SESSIONS = 400

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(params=[True, False], ids=["lane", "asgi"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"fast_path": request.param}


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR or r.exc_info]


# Malformed requests

SMUGGLED = {
    "NUL": request(None, "X-A: b\x00c"),
    "bare LF": request(None, "X-A: b\nX-B: c"),
    "bare CR": request(None, "X-A: b\rX-B: c"),
    "folded line": request(None, "X-A: b", " folded"),
    "blank before the colon": request(None, "X-A : b"),
    "control character in a name": request(None, "X\x01A: b"),
    "two lengths": request(None, "Content-Length: 5"),
    "signed length": request(None, "Content-Length: +5", length=-1),
    "list of lengths": request(None, "Content-Length: 5, 5", length=-1),
    "endless length": request(None, "Content-Length: " + "9" * 40, length=-1),
    "length and chunks": request(None, "Transfer-Encoding: chunked"),
    "unknown encoding": request(None, "Transfer-Encoding: xchunked", length=-1),
    "no size": chunked(request()).replace(b"chunked\r\n\r\n", b"chunked\r\n\r\nzz"),
    "no host": request(host=None),
    "two hosts": request(None, "Host: localhost"),
    "no path": request(line="POST mcp HTTP/1.1"),
    "no ASCII": request(line="POST /m\xe9 HTTP/1.1"),
    "unknown method": request(line="FETCH /mcp HTTP/1.1"),
    "TLS": b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + b"x" * 180,
}


async def test_malformed_and_ambiguous_requests_are_rejected(options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        for what, bad in SMUGGLED.items():
            async with line_to(web) as line:
                line.send(bad)
                assert (await line.answer()).status == 400, what
                assert await line.closed(), what


async def test_trailers_are_not_used_as_headers(options: dict[str, Any]) -> None:
    """Proxies do not check trailers, so they must not replace headers."""
    async with serving(make_server(), **options) as web:
        assert (await ask(web, chunked(request()))).text == "3"
        without = request(leave_out="Mcp-Name")
        assert (await ask(web, chunked(without, b"Mcp-Name: add\r\n"))).status == 400
        assert (await ask(web, chunked(request(), b"Mcp-Name: other\r\n"))).text == "3"


@pytest.mark.parametrize("where", ["headers", "one header", "trailers", "chunk extension"])
async def test_heads_and_trailers_are_limited_in_size(where: str, options: dict[str, Any]) -> None:
    flood = b"".join([b"X-%d: aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" % n for n in range(4000)])
    start = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"
    body = start + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    sent = {
        "headers": start + b"X: a\r\n",
        "one header": start + b"X: ",
        "trailers": body + b"1\r\n{\r\n0\r\n",
        "chunk extension": body + b"1;a=",
    }[where]
    async with serving(make_server(), **options) as web, line_to(web) as line:
        line.send(sent)
        await asyncio.sleep(0.05)  # wait so that the next chunk arrives separately
        line.send(flood if where in ("headers", "trailers") else b"b" * 100_000)
        assert (await line.answer()).status == 431
        assert (await ask(web, request())).text == "3"


async def test_a_head_that_is_too_long_is_rejected(options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        assert (await ask(web, request(None, "X-A: " + "a" * 70_000))).status == 431
        assert (await ask(web, request(None, "X-A: " + "a" * 60_000))).text == "3"


async def test_a_large_body_does_not_count_towards_the_next_head(options: dict[str, Any]) -> None:
    large = {"name": "add", "arguments": {"a": 1, "b": 2}, "x": "y" * 150_000}
    async with serving(make_server(), **options) as web, line_to(web) as line:
        second = request()
        line.send(request(large) + second[:40])
        assert (await line.answer()).text == "3"
        line.send(second[40:])
        assert (await line.answer()).text == "3"


@pytest.mark.parametrize("path", ["/mcp", "/tools/add/call", "/messages?session_id=x"])
async def test_requests_with_compressed_bodies_are_rejected(
    path: str, options: dict[str, Any]
) -> None:
    bomb = gzip.compress(b" " * 1_000_000)
    async with serving(make_server(), **options) as web:
        sent = request(None, "Content-Encoding: gzip", line=f"POST {path} HTTP/1.1", body=bomb)
        got = await ask(web, sent)
        assert (got.status, got.fields["accept-encoding"]) == (415, "identity")
        assert (await ask(web, request(None, "Content-Encoding: identity"))).text == "3"


async def test_the_body_limit_applies_to_every_framing(options: dict[str, Any]) -> None:
    large = request({**ADD, "x": "y" * 3000})
    async with serving(make_server(), max_body=2000, **options) as web:
        for sent in (large, chunked(large), request(length=10**12)):
            got = await ask(web, sent)
            assert (got.status, got.fields["connection"]) == (413, "close")


async def test_requests_with_invalid_origins_are_rejected(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(make_server(), **options) as web:
        for origin in ("http://[", "http://[::1", "http://]", "//", "null", "\xff"):
            assert (await ask(web, request(None, f"Origin: {origin}"))).status == 403, origin
    assert errors_in(caplog) == []


async def test_an_endpoint_is_reached_only_by_equivalent_spellings_of_its_path(
    options: dict[str, Any],
) -> None:
    here = ("/mcp", "/mcp/", "/%6dcp", "/mcp?a=b", "http://localhost/mcp")
    elsewhere = ("//mcp", "/mcp/..", "/x/../mcp", "/mcp%00", "/%ff", "/MCP")
    async with serving(make_server(), **options) as web:
        for target in here:
            assert (await ask(web, request(line=f"POST {target} HTTP/1.1"))).status == 200, target
        for target in elsewhere:
            assert (await ask(web, request(line=f"POST {target} HTTP/1.1"))).status == 404, target


async def test_unsupported_http_methods_are_answered_and_keep_the_connection_usable(
    options: dict[str, Any],
) -> None:
    async with serving(make_server(), **options) as web:
        async with line_to(web) as line:
            for method, status in (("OPTIONS", 403), ("PUT", 405), ("TRACE", 405)):
                line.send(request(line=f"{method} /mcp HTTP/1.1"))
                assert (await line.answer()).status == status
            line.send(request(line="HEAD /mcp HTTP/1.1") + request())
            assert (await line.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 405")
            assert (await line.answer()).text == "3"
        assert (await ask(web, request(line="CONNECT localhost:80 HTTP/1.1"))).status == 405


# Other versions, upgrades, expectations


async def test_http_1_0_clients_get_no_chunked_responses(options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        for extra in ((), ("Connection: keep-alive",)):
            async with line_to(web) as line:
                line.send(request(None, *extra, line="POST /mcp HTTP/1.0", host=None))
                got = await line.answer()
                assert (got.text, got.fields["connection"]) == ("3", "close")
                assert await line.closed()
        streamed = await ask(web, request(STEPS, line="POST /mcp HTTP/1.0", progressToken=1))
        assert streamed.fields["content-type"] == "text/event-stream"
        assert "transfer-encoding" not in streamed.fields
        assert streamed.body.startswith(b"data: {")
        assert streamed.body.count(b"data: ") == 4


@pytest.mark.parametrize("offer", ["h2c", "websocket", "TLS/1.0"])
async def test_an_upgrade_header_in_a_post_request_is_ignored(
    offer: str, options: dict[str, Any]
) -> None:
    """Java's client offers h2c with every first request; the body must not be lost."""
    fields = ("Connection: Upgrade, HTTP2-Settings", f"Upgrade: {offer}", "HTTP2-Settings: AAMA")
    async with serving(make_server(), **options) as web, line_to(web) as line:
        whole = request(None, *fields)
        line.send(whole[:-20])
        await asyncio.sleep(0.05)
        line.send(whole[-20:])
        assert (await line.answer()).text == "3"
        line.send(request(None, *fields) + request())
        assert (await line.answer()).text == "3"
        assert (await line.answer()).text == "3"


@pytest.mark.parametrize(
    "extra",
    [
        ("Sec-WebSocket-Key: short",),
        ("X-Long: " + "a" * 9000,),
        tuple(f"X-{n}: a" for n in range(200)),
        ("Content-Length: 5",),
    ],
    ids=["bad key", "long line", "many lines", "body"],
)
async def test_an_invalid_websocket_handshake_is_answered_with_400(extra: tuple[str, ...]) -> None:
    fields = ["Host: localhost", "Connection: Upgrade", "Upgrade: websocket", *extra]
    head = "\r\n".join(["GET /ws HTTP/1.1", *fields, "Sec-WebSocket-Version: 13", "", ""])
    async with serving(make_server()) as web, line_to(web) as line:
        line.send(head.encode() + b"hello")
        assert (await line.answer()).status == 400
        assert await line.closed()


async def test_expect_100_continue_is_answered_before_the_body(options: dict[str, Any]) -> None:
    head, _, body = request(None, "Expect: 100-continue").partition(b"\r\n\r\n")
    async with serving(make_server(), **options) as web, line_to(web) as line:
        line.send(head + b"\r\n\r\n")
        assert (await line.answer()).status == 100
        line.send(body)
        assert (await line.answer()).text == "3"
        line.send(head.replace(b"application/json\r\n", b"text/plain\r\n", 1) + b"\r\n\r\n")
        # sent before the body because the headers are already invalid
        assert (await line.answer()).status == 415


async def test_plain_http_on_a_tls_port_logs_no_error(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    from tests.transport.http.server.test_guarded_protocol import _certificate

    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    _certificate(key, certificate)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate, key)
    ours = ssl.create_default_context(cafile=str(certificate))
    async with serving(make_server(), tls=theirs) as web:
        host, _, port = web.url.removeprefix("https://").removesuffix("/mcp").partition(":")
        line = Line(*await asyncio.open_connection(host, int(port)))
        line.send(request())
        assert await line.closed()
        line.drop()
        body, headers = stateless("tools/call", ADD)
        sent = {**headers, "Content-Type": "application/json"}
        async with web.http.post(web.url, json=body, headers=sent, ssl=ours) as response:
            assert response.status == 200
    assert errors_in(caplog) == []


# Several requests on one connection


async def test_pipelined_requests_of_all_kinds_are_answered_in_order(
    options: dict[str, Any],
) -> None:
    kinds: list[tuple[bytes, int]] = [
        (request(), 200),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (request(STEPS, progressToken=1), 200),
        (chunked(request()), 200),
        (request(None, "Content-Type: text/plain"), 415),
        (request(method="no/such"), 404),
        (request(None, "Connection: Upgrade", "Upgrade: h2c"), 200),
        (request(None, line="POST /elsewhere HTTP/1.1"), 404),
        (request(method="tools/list", params={"x": 1}), 200),
    ]
    rng = random.Random(7)
    async with serving(make_server(), **options) as web:
        for _ in range(5):
            chosen = rng.choices(kinds, k=40)
            async with line_to(web) as line:
                line.send(b"".join([sent for sent, _ in chosen]))
                assert [(await line.answer()).status for _ in chosen] == [s for _, s in chosen]


async def test_a_malformed_request_does_not_affect_the_response_to_the_request_before_it(
    options: dict[str, Any],
) -> None:
    for bad in (b"\x00\x01nonsense\r\n\r\n", request(None, "X-A: " + "a" * 70_000)):
        async with serving(make_server(), **options) as web, line_to(web) as line:
            line.send(request(STEPS, progressToken=1) + bad)
            got = await line.answer()
            assert (got.status, got.body.count(b"data: ")) == (200, 4)
            assert await line.closed()


async def test_requests_after_a_rejected_request_are_not_executed(options: dict[str, Any]) -> None:
    desk = Desk()
    async with serving(make_server(desk), **options) as web, line_to(web) as line:
        line.send(request(None, "X-A: " + "a" * 70_000) + request(WAIT))
        assert (await line.answer()).status == 431
        assert await line.closed()
        assert not desk.started.is_set()


async def test_a_disconnect_with_pipelined_requests_cancels_the_first_request(
    options: dict[str, Any],
) -> None:
    desk = Desk()
    async with serving(make_server(desk), heartbeat=0.05, **options) as web:
        async with line_to(web) as line:
            line.send(request(WAIT))
            await happens(desk.started)
            await asyncio.sleep(0.05)
            line.send(request() + request())
            await asyncio.sleep(0.05)
        await happens(desk.cancelled)


async def test_most_requests_of_a_client_that_does_not_read_are_not_executed(
    options: dict[str, Any],
) -> None:
    server = make_server()
    called = 0

    @server.tool(inline=True)
    def wide() -> str:
        nonlocal called
        called += 1
        return "x" * 100_000

    async with serving(server, **options) as web, line_to(web) as line:
        transport: Any = line.writer.transport
        transport.pause_reading()
        line.send(request({"name": "wide", "arguments": {}}) * 2000)
        await asyncio.sleep(0.5)
        assert called < 200  # of 2000 requests, only those in kernel buffers and a few more
        assert (await ask(web, request())).text == "3"


# Slow clients


async def test_the_connection_is_closed_if_the_rest_of_the_body_does_not_arrive(
    options: dict[str, Any],
) -> None:
    whole = request()
    async with serving(make_server(), **options, body_timeout=0.2) as web:
        for sent in (whole[:-1], chunked(whole)[:-4], whole.partition(b"{")[0]):
            async with line_to(web) as line:
                line.send(sent)
                assert await line.closed(2)


async def test_a_slow_body_within_its_timeout_is_served(options: dict[str, Any]) -> None:
    head, _, body = request().partition(b"\r\n\r\n")
    async with serving(make_server(), **options, body_timeout=10) as web, line_to(web) as line:
        line.send(head + b"\r\n\r\n")
        for n in range(8):
            await asyncio.sleep(0.02)
            line.send(body[n : n + 1])
        line.send(body[8:])
        assert (await line.answer()).text == "3"


async def test_a_connection_that_only_sends_blank_lines_is_closed(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_TIME", 0.3)
    async with serving(make_server(), **options) as web, line_to(web) as line:
        line.send(request())
        assert (await line.answer()).text == "3"
        began = time.monotonic()
        while not line.reader.at_eof() and time.monotonic() - began < 2:
            line.send(b"\r\n")
            await asyncio.sleep(0.05)
        assert await line.closed(1)
        assert time.monotonic() - began < 2


@on_linux
async def test_responses_on_an_unread_http_sse_stream_are_limited() -> None:
    """With HTTP+SSE of 2024-11-05, the responses to POSTs are sent on a stream."""
    async with program() as served, line_to(served.web) as line:
        line.send(b"GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await line.reader.readuntil(b"session_id=")
        session = (await line.reader.readuntil(b"\n")).strip().decode()
        transport: Any = line.writer.transport
        transport.pause_reading()
        place = served.web.url.replace("/mcp", f"/messages?session_id={session}")
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        for message in (introduction("2024-11-05"), ready):
            assert (await served.web.post(message, url=place)).status == 202
        before = served.memory
        params = {"name": "big", "arguments": {"size": 1_000_000}}
        for n in range(100):
            message = {"jsonrpc": "2.0", "id": n + 2, "method": "tools/call", "params": params}
            last = await served.web.post(message, url=place)
        assert (last.status, last.body) == (
            503,
            b"503 Service Unavailable: too much unread data: read the stream first\n",
        )
        assert (await served.web.post(ready, url=place)).status == 202
        print(f"100 MB for a client that does not read: {served.memory - before:+.1f} MiB")
        assert served.memory - before < 80


async def test_a_thousand_incomplete_requests_do_not_block_other_clients() -> None:
    async with serving(make_server()) as web:
        host, _, port = web.url.removeprefix("http://").removesuffix("/mcp").partition(":")
        halves = []
        for n in range(1000):
            line = Line(*await asyncio.open_connection(host, int(port)))
            line.send(request()[: n % 400])
            halves.append(line)
        took = []
        for _ in range(50):
            began = time.perf_counter()
            assert (await web.stateless("tools/call", ADD)).text == "3"
            took.append(time.perf_counter() - began)
        assert sorted(took)[25] < 0.1
        for line in halves:
            line.drop()


@on_linux
async def test_slow_readers_use_little_memory_and_do_not_block_other_clients() -> None:
    loop = asyncio.get_running_loop()
    chatter = request({"name": "chatter", "arguments": {"n": 5000}}, progressToken=1)
    async with program() as served:
        host, _, port = served.web.url[7:].removesuffix("/mcp").partition(":")
        before = served.memory
        readers = []
        for _ in range(10):
            reader = socket.socket()
            reader.setblocking(False)
            await loop.sock_connect(reader, (host, int(port)))
            await loop.sock_sendall(reader, chatter)
            readers.append(reader)
        for _ in range(10):
            for reader in readers:
                assert len(await loop.sock_recv(reader, 1)) == 1
            began = time.perf_counter()
            assert (await served.web.stateless("tools/call", ADD)).text == "3"
            assert time.perf_counter() - began < 1
        grown = served.memory - before
        print(f"10 slow readers of 50 MB each: {grown:+.1f} MiB")
        assert grown < 40
        for reader in readers:
            reader.close()


async def test_a_client_that_reads_too_slowly_is_disconnected(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that rarely reads a byte must not keep megabytes queued."""
    monkeypatch.setattr(connection, "STALLED", 0.2)
    loop = asyncio.get_running_loop()
    server = make_server()

    @server.tool(output_schema=False)
    async def big() -> str:
        return "x" * 12_000_000

    async with serving(server, **options) as web:
        host, _, port = web.url[7:].removesuffix("/mcp").partition(":")
        with socket.socket() as reader:
            reader.setblocking(False)
            await loop.sock_connect(reader, (host, int(port)))
            await loop.sock_sendall(reader, request({"name": "big", "arguments": {}}))
            got = 0
            async with asyncio.timeout(5):
                with contextlib.suppress(ConnectionError):
                    while chunk := await loop.sock_recv(reader, 1 if got < 40 else 1 << 20):
                        got += len(chunk)
                        await asyncio.sleep(0.02 if got < 40 else 0)
            assert got < 12_000_000


async def test_responses_are_not_delayed_by_tcp_acknowledgements(loop_kind: str) -> None:
    """Nagle's algorithm with delayed acknowledgements would add 40 ms to each response."""
    async with serving(make_server()) as web:
        took = []
        for _ in range(20):
            began = time.perf_counter()
            assert (await web.get(web.url.replace("/mcp", "/health"))).status == 200
            took.append(time.perf_counter() - began)
        assert sorted(took)[10] < 0.03


# Disconnects


async def test_a_request_with_an_incomplete_body_is_not_executed(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    whole = request(WAIT)
    cuts = (whole[:60], whole.partition(b"{")[0], whole[:-5], chunked(whole)[:-9])
    async with serving(make_server(desk), **options) as web:
        for cut in cuts:
            for how in ("abort", "eof"):
                async with line_to(web) as line:
                    line.send(cut)
                    if how == "eof":
                        line.writer.write_eof()
                        assert await line.closed()
        assert (await ask(web, request())).text == "3"
        assert not desk.started.is_set()
    assert errors_in(caplog) == []


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_disconnect_cancels_a_stateless_call(
    streaming: bool, options: dict[str, Any]
) -> None:
    desk = Desk()
    server = make_server(desk)
    heartbeat = 0.05 if streaming else 15.0
    async with serving(server, heartbeat=heartbeat, **options) as web:
        async with line_to(web) as line:
            line.send(request(WAIT))
            await happens(desk.started)
            if streaming:
                assert b"event-stream" in await line.reader.readuntil(b": heartbeat")
        await happens(desk.cancelled)


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_disconnect_does_not_cancel_a_call_of_a_session(streaming: bool) -> None:
    desk = Desk()
    async with serving(make_server(desk), heartbeat=0.05 if streaming else 15.0) as web:
        session = await web.initialize()
        call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": WAIT}
        async with line_to(web) as line:
            line.send(request(body=json.dumps(call).encode(), session=session.headers))
            await happens(desk.started)
            if streaming:
                await line.reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.2)
        assert not desk.cancelled.is_set()
        desk.go_on.set()
        assert (await session.call("add", {"a": 1, "b": 2})).text == "3"


@on_linux
async def test_two_thousand_disconnected_clients_leave_no_state() -> None:
    """Compare tasks, sessions and memory after clients have disconnected at random moments."""
    rng = random.Random(3)
    listen = request({"notifications": {"toolsListChanged": True}}, method="subscriptions/listen")
    async with program() as served:
        host, _, port = served.web.url[7:].removesuffix("/mcp").partition(":")

        async def leave(whole: bytes) -> None:
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(whole[: rng.randrange(len(whole) * 3 // 2)])
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() * 0.01)
            writer.transport.abort()

        async def crowd(count: int) -> None:
            chatter = request({"name": "chatter", "arguments": {"n": 500}}, progressToken=1)
            kinds = [request(), chunked(request()), chatter, listen]
            for _ in range(count // 20):
                await asyncio.gather(*[leave(rng.choice(kinds)) for _ in range(20)])

        async def rest() -> int:
            """Wait until the server is idle, and return the number of allocated memory blocks."""
            async with asyncio.timeout(20):
                while True:
                    *now, blocks = await served.alive()
                    if now == idle:
                        return blocks

        async def crowds(count: int) -> int:
            # If all clients ran at once on a busy machine, the process would keep more memory.
            for _ in range(count // 100):
                await crowd(100)
                blocks = await rest()
            return blocks

        await served.alive()
        *idle, _ = await served.alive()
        blocks = await crowds(500)
        before = served.memory
        more = await crowds(2000) - blocks
        grown = served.memory - before
        print(f"2000 disconnected clients: {before:.1f} MiB, then {grown:+.1f}, {more:+} blocks")
        assert more < 1000  # half a block per client
        assert grown < 4


@on_linux
async def test_ended_and_evicted_sessions_leave_no_memory_allocated() -> None:
    async with program() as served:
        web = served.web

        async def visit() -> None:
            session = await web.initialize()
            await session.call("add", {"a": 1, "b": 2})
            async with web.http.delete(web.url, headers=session.headers) as response:
                assert response.status == 200

        async def forget() -> None:
            # sessions are not ended, so the session table is full after 100
            await web.post(introduction())

        async def crowd(count: int) -> None:
            for _ in range(count // 10):
                await asyncio.gather(*[visit() for _ in range(5)], *[forget() for _ in range(5)])

        await crowd(600)
        before = served.memory
        began = time.perf_counter()
        await crowd(SESSIONS)
        took = time.perf_counter() - began
        grown = served.memory - before
        print(f"{SESSIONS} sessions in {took:.1f} s: {before:.1f} MiB, then {grown:+.1f}")
        assert grown < 8


# Shutdown


async def test_requests_during_shutdown_are_answered_or_closed(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every client is answered or disconnected, and no error is logged."""
    monkeypatch.setattr(run_http, "DrainPlan", partial(DrainPlan, limit=1.0))
    desk = Desk()
    server = make_server(desk)
    seen: list[int] = []

    async def press(line: Line, sent: bytes) -> None:
        try:
            while True:
                line.send(sent)
                got = await line.answer()
                seen.append(got.status)
                if got.status == 0 or got.fields.get("connection") == "close":
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            seen.append(0)

    hello = json.dumps(introduction()).encode()
    lines: list[Line] = []
    async with asyncio.TaskGroup() as group:
        async with serving(server, **options) as web:
            host, _, port = web.url[7:].removesuffix("/mcp").partition(":")
            for sent in (
                request(),
                request(body=hello, session={}),
                request(WAIT),
                request()[:90],
            ) * 5:
                line = Line(*await asyncio.open_connection(host, int(port)))
                lines.append(line)
                group.create_task(press(line, sent))
            await happens(desk.started)
            await asyncio.sleep(0.1)
        for line in lines:
            line.drop()
    assert set(seen) <= {0, 200, 500, 503}  # 500: a tool that was running
    assert [e for e in errors_in(caplog) if "timeout graceful shutdown" not in e] == []


# Random changes


def mutated(rng: random.Random, whole: bytes) -> bytes:
    """Return a request with random changes."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(whole) + 1)
        match rng.randrange(7):
            case 0:
                whole = whole[:at] + bytes([rng.randrange(256)]) + whole[at + 1 :]
            case 1:
                whole = whole[:at] + rng.choice(TOKENS) + whole[at:]
            case 2:
                whole = whole[:at] + whole[at + rng.randrange(1, 40) :]
            case 3:
                whole = whole[:at]
            case 4:
                whole = whole[:at] + whole[at : at + 50] * rng.randrange(2, 9) + whole[at + 50 :]
            case 5:
                lines = whole.split(b"\r\n")
                rng.shuffle(lines)
                whole = b"\r\n".join(lines)
            case 6:
                lines = whole.split(b"\r\n")
                lines.insert(rng.randrange(len(lines)), rng.choice(FIELDS))
                whole = b"\r\n".join(lines)
        whole = whole or b"\n"
    return whole


TOKENS = [b"\r\n", b"\n", b"\r", b"\0", b":", b" ", b"\r\n\r\n", b"%", b"{", b'"', b"[", b"\xff"]
FIELDS = [
    b"Transfer-Encoding: chunked",
    b"Content-Length: 10",
    b"Content-Length: -1",
    b"Connection: close",
    b"Connection: upgrade",
    b"Upgrade: h2c",
    b"Expect: 100-continue",
    b"Origin: http://[x",
    b"Authorization: Bearer \xff",
    b"Accept: text/event-stream",
    b"Mcp-Session-Id: \xe9",
    b"Last-Event-ID: g_99999999999999999",
    b"X-Correlation-Id: \xff\xfe",
    b"Prefer: status=mapped",
    b"MCP-Protocol-Version: 2025-11-25",
    b"MCP-Protocol-Version: \xff",
    b"Mcp-Name: =?base64?///?=",
    b"Access-Control-Request-Headers: a\tb",
]


@pytest.mark.parametrize("seed", range(2))
async def test_every_mutated_request_is_answered_or_its_connection_closed(
    seed: int,
    options: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "HEAD_TIME", 0.3)
    monkeypatch.setattr(connection, "STALLED", 0.3)
    options = {**options, "body_timeout": 0.3}
    monkeypatch.setattr(run_http, "KEEP_ALIVE", 1.0)
    rng = random.Random(seed)
    session_call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    batch = [{**session_call, "id": n} for n in range(3)]
    async with serving(make_server(), **options) as web:
        session = await web.initialize()
        texts = [json.dumps(value).encode() for value in (session_call, batch)]
        seeds = [
            request(),
            chunked(request()),
            request(STEPS, progressToken=1),
            request(method="server/discover", params=dict(META)),
            request({"uri": "note://one"}, method="resources/read"),
            request(body=texts[0], session=session.headers),
            request(body=texts[1], session={}),
            request(line="POST /tools/add/call HTTP/1.1", body=b'{"a": 1, "b": 2}'),
            request(line="GET /openapi.json HTTP/1.1", body=b""),
            request(line="GET /sse HTTP/1.1", body=b""),
            request(line="GET /mcp HTTP/1.1", body=b"", session=session.headers),
            request(None, "Access-Control-Request-Method: POST", line="OPTIONS / HTTP/1.1"),
        ]

        async def once() -> None:
            sent = mutated(rng, rng.choice(seeds))
            if rng.random() < 0.3:
                sent += mutated(rng, rng.choice(seeds))
            async with line_to(web) as line:
                line.send(sent)
                try:
                    async with asyncio.timeout(2):
                        await line.reader.read(1)
                except ConnectionError:
                    pass
                except TimeoutError:
                    pytest.fail(f"neither answered nor closed: {sent!r}")

        for _ in range(5):
            await asyncio.gather(*[once() for _ in range(60)])
            assert (await ask(web, request())).text == "3"
            assert (await session.call("add", {"a": 1, "b": 2})).text == "3"
    assert errors_in(caplog) == []


async def happens(event: asyncio.Event) -> None:
    async with asyncio.timeout(5):
        await event.wait()
