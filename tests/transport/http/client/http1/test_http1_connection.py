"""HTTP/1.1 connections to servers that close early, violate the protocol, trickle or flood."""

import asyncio
import contextlib
import gc
import gzip
import os
import socket
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairlead.transport.http.client.http1.pool as dialling
import fairlead.transport.http.client.http1.pool as pooling
from fairlead.errors import ChannelClosed, ConnectFailed, HttpError, TransportError
from fairlead.transport.http.client.http1.http1_connection import Http1Connection
from fairlead.transport.http.client.http1.http_client import HttpClient
from fairlead.transport.http.client.http1.response import HttpResponse
from fairlead.transport.http.client.http1.url import EndpointUrl
from tests.support.scripted_http_server import Call, RawServer, raw_server

MAX_HEAD = 64 << 10
MAX_UNREAD = 256 << 10
AT_ONCE = 256 << 10

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: Text/Plain; a=b\r\nX: 1\r\nx: 2\r\n"
WHOLE = PLAIN + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = PLAIN + b"Transfer-Encoding: chunked\r\n\r\n"
PIECES = b"2;why=not\r\nhe\r\n3\r\nllo\r\n"
ANSWERS = {
    "length": WHOLE,
    "empty": PLAIN + b"Content-Length: 0\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "chunked": CHUNKED + PIECES + b"0\r\n\r\n",
    "trailers": CHUNKED + PIECES + b"0\r\nX: 3\r\nY: 4\r\n\r\n",
    "continue": b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,
    "early hints": b"HTTP/1.1 103 Early Hints\r\nX: 0\r\n\r\n" * 3 + WHOLE,
    "garbage after": WHOLE + b"more",
    "another answer after": WHOLE + WHOLE,
    "close": PLAIN + b"Content-Length: 5\r\nConnection: close\r\n\r\nhello",
    "1.0": WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "until close": PLAIN + b"\r\nhello",
    "lying length": PLAIN + b"Content-Length: 6\r\n\r\nhello",
    "two lengths": PLAIN + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "length and chunked": PLAIN
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "strange encoding": PLAIN + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "length in trailers": CHUNKED + PIECES + b"0\r\nContent-Length: 9\r\n\r\n",
    "bad chunk": CHUNKED + PIECES + b"x\r\n",
    "upgrade": b"HTTP/1.1 101 Up\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "nothing": b"",
}
REUSED = {"length", "empty", "no content", "chunked", "trailers", "continue", "early hints"}
BROKEN = {
    "lying length",
    "two lengths",
    "length and chunked",
    "strange encoding",
    "length in trailers",
    "bad chunk",
    "upgrade",
    "no HTTP",
    "nothing",
}


class Wire:
    """A transport that records writes and sends nothing."""

    def __init__(self) -> None:
        self.written = b""
        self.sizes: list[int] = []  # the size of each write
        self.closing = False
        self.paused = False
        self.pauses = self.resumes = 0

    def write(self, data: bytes) -> None:
        self.written += data
        self.sizes.append(len(data))

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        self.paused = True
        self.pauses += 1

    def resume_reading(self) -> None:
        self.paused = False
        self.resumes += 1


async def outcome(pieces: Sequence[bytes]) -> tuple[Any, ...]:
    """Feed the chunks to a connection, close it, and return how the request ended."""
    line, wire = Http1Connection("a.example", lambda _: None, lambda _: None), Wire()
    line.connection_made(wire)  # type: ignore[arg-type]
    asked = asyncio.ensure_future(line.ask("http://a.example/", b"GET", None))
    await asyncio.sleep(0)
    for piece in pieces:
        if not wire.closing:
            line.data_received(piece)
            await asyncio.sleep(0)
    usable = line.usable
    if not wire.closing:
        line.eof_received()
    line.connection_lost(None)
    try:
        async with asyncio.timeout(5):
            reply = await asked
            body = await reply.read()
    except ChannelClosed:
        return ("broken", usable)
    return (reply.status, reply.reason, reply.content_type, reply.headers, body, usable)


# Responses do not depend on the boundaries between chunks.


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_response_may_be_split_at_any_byte(name: str) -> None:
    raw = ANSWERS[name]
    whole = await outcome([raw] if raw else [])
    assert (whole[0] == "broken") == (name in BROKEN)
    assert whole[-1] == (name in REUSED)
    if name in REUSED and name != "no content":
        assert whole[:3] == (200, "OK", "text/plain")
        assert whole[3]["x"] == "1, 2"
        assert whole[4] == (b"" if name == "empty" else b"hello")
    assert await outcome([raw[i : i + 1] for i in range(len(raw))]) == whole
    for cut in range(1, len(raw)):
        assert await outcome([raw[:cut], raw[cut:]]) == whole, cut


@given(name=st.sampled_from(sorted(ANSWERS)), cuts=st.lists(st.integers(0, 300)))
def test_the_parsed_response_does_not_depend_on_the_chunks(name: str, cuts: list[int]) -> None:
    raw = ANSWERS[name]
    edges = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    pieces = [raw[a:b] for a, b in pairwise(edges)]
    assert asyncio.run(outcome(pieces)) == asyncio.run(outcome([raw] if raw else []))


@pytest.mark.parametrize("name", sorted(REUSED))
async def test_a_truncated_response_raises_an_error(name: str) -> None:
    raw = ANSWERS[name]
    for cut in range(len(raw)):
        assert await outcome([raw[:cut]] if cut else []) == ("broken", False), cut


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_rejected_as_a_response(noise: bytes) -> None:
    status = asyncio.run(outcome([noise] if noise else []))[0]
    assert status == "broken" or noise.startswith(b"HTTP/")


# Limits


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 1000),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 200),
        (b"HTTP/1.1 200 ", b"K" * 1000),
        (b"", b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 30),
        (b"", b"\r\n" * 500),
        (CHUNKED + b"1;", b"x" * 1000),
        (CHUNKED + b"1\r\nx\r\n0\r\n", b"X: y\r\n" * 200),
    ],
    ids=["a header", "headers", "reason", "hints", "lines", "extension", "trailers"],
)
async def test_the_number_of_response_bytes_outside_the_body_is_limited(
    begin: bytes, more: bytes
) -> None:
    line, wire = Http1Connection("a.example", lambda _: None, lambda _: None), Wire()
    line.connection_made(wire)  # type: ignore[arg-type]
    asked = asyncio.ensure_future(line.ask("http://a.example/", b"GET", None))
    await asyncio.sleep(0)
    fed = 0
    line.data_received(begin)
    while not wire.closing:
        line.data_received(more)
        fed += len(more)
        assert fed < MAX_HEAD + 3000
    with pytest.raises(ChannelClosed, match="sent an invalid HTTP response"):
        await (await asked).read()


async def test_the_size_of_headers_received_in_one_chunk_is_limited() -> None:
    raw = b"HTTP/1.1 200 OK\r\n" + b"X: %b\r\n" % (b"y" * 1000) * 100 + b"\r\n"
    assert await outcome([raw]) == ("broken", False)


async def test_reading_pauses_while_the_body_is_unread(loop_kind: str) -> None:
    piece, total = b"x" * (64 << 10), 64 << 20
    sent = 0

    async def pour(call: Call) -> None:
        nonlocal sent
        await call.raw(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while sent < total:
            await call.raw(piece)
            sent += len(piece)

    async with opened(pour) as (door, server):
        reply = await door.open("GET", {})
        before = -1
        while before != sent:  # until the number of sent bytes stops growing
            before = sent
            await asyncio.sleep(0.1)
        assert sent < total / 2
        assert reply._size <= 4 * MAX_UNREAD  # type: ignore[attr-defined]
        got = 0
        while chunk := await reply.chunk():
            assert len(chunk) <= 4 * MAX_UNREAD
            got += len(chunk)
        assert got == total
        assert server.connections == 1


@pytest.mark.parametrize("framing", ["length", "chunked", "until close", "gzip"])
async def test_a_response_body_over_the_limit_is_rejected(framing: str) -> None:
    async def much(call: Call) -> None:
        body = b"x" * 300_000
        match framing:
            case "length":
                await call.answer(200, body)
            case "chunked":
                await call.raw(CHUNKED)
                await call.chunk(body)
            case "until close":
                await call.raw(b"HTTP/1.1 200 OK\r\n\r\n" + body)
            case _:
                await call.answer(200, gzip.compress(body), Content_Encoding="gzip")

    async with opened(much) as (door, _):
        with pytest.raises(TransportError, match="over the limit of 299999 bytes"):
            await (await door.open("GET", {})).read(299_999)
        if framing == "length":
            assert len(await (await door.open("GET", {})).read(300_000)) == 300_000


# Compressed bodies


def deflated(data: bytes, kind: int) -> bytes:
    packer = zlib.compressobj(wbits=kind)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("kind", ["gzip", "x-gzip", "GZIP", "deflate", "bare", "identity"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_body_with_an_unrequested_compression_is_decompressed(
    kind: str, stream: bool
) -> None:
    text = b"hello " * 100_000
    packed = {"deflate": deflated(text, 15), "bare": deflated(text, -15), "identity": text}

    async def answer(call: Call) -> None:
        assert call.headers["accept-encoding"] == "identity"
        encoding = "deflate" if kind == "bare" else kind
        await call.answer(200, packed.get(kind) or gzip.compress(text), Content_Encoding=encoding)

    async with opened(answer) as (door, server):
        for _ in range(2):
            reply = await door.open("GET", {})
            if stream:
                got = b""
                while chunk := await reply.chunk():
                    got += chunk
            else:
                got = await reply.read()
            assert got == text
        assert server.connections == 1


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("br", b"x"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"x"))),
        ("gzip", b"not packed"),
        ("gzip", gzip.compress(b"hello")[:-3]),
        ("gzip", gzip.compress(b"") * 3),
        ("deflate", deflated(b"hello", 15)[:-1]),
    ],
    # The time of day in gzip data must not become part of a test name, because all processes of
    # a test run have to collect the same names.
    ids=["unknown", "twice", "not gzip", "truncated", "three members", "truncated deflate"],
)
async def test_an_invalid_compressed_body_raises_an_error(encoding: str, body: bytes) -> None:
    async def answer(call: Call) -> None:
        await call.answer(500, body, Content_Encoding=encoding)

    async with opened(answer) as (door, _):
        with pytest.raises(ChannelClosed, match="content encoding|compressed body"):
            await (await door.open("GET", {})).read()
        error, said = await (await door.open("GET", {})).refusal()
        assert (error.status, said) == (500, b"")


# Connections


@contextlib.asynccontextmanager
async def opened(handler: Any) -> AsyncIterator[tuple[HttpClient, RawServer]]:
    async with asyncio.timeout(20), raw_server(handler) as server:
        door = HttpClient(EndpointUrl.parse(server.url))
        try:
            yield door, server
        finally:
            await door.close()


async def hello(call: Call) -> None:
    await call.answer(200, "hello")


async def repeat(call: Call) -> None:
    await call.answer(200, call.body)


async def test_64_concurrent_requests_use_at_most_64_connections(loop_kind: str) -> None:
    async def ask(door: HttpClient, n: int) -> bytes:
        return await (await door.open("POST", {}, b"%d" % n)).read()

    async with opened(repeat) as (door, server):
        for _ in range(3):
            got = await asyncio.gather(*(ask(door, n) for n in range(64)))
            assert got == [b"%d" % n for n in range(64)]
        assert server.connections <= 64


@pytest.mark.parametrize("ending", ["Connection: close", "HTTP/1.0", "until close"])
async def test_a_closed_connection_is_not_reused(ending: str, loop_kind: str) -> None:
    async def answer(call: Call) -> None:
        match ending:
            case "Connection: close":
                await call.answer(200, "hello", Connection="close")
            case "HTTP/1.0":
                await call.raw(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello")
            case _:
                await call.raw(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await asyncio.sleep(0.01)
        raise ConnectionError  # makes the server close the connection

    async with opened(answer) as (door, server):
        for n in range(3):
            assert await (await door.open("POST", {}, b"x")).read() == b"hello"
            assert server.connections == n + 1


async def test_a_connection_closed_while_idle_is_not_reused(loop_kind: str) -> None:
    async with opened(hello) as (door, server):
        await (await door.open("POST", {}, b"1")).read()
        server.calls[0].cut()
        while door._pool._kept:  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
        assert await (await door.open("POST", {}, b"2")).read() == b"hello"
        assert [call.body for call in server.calls] == [b"1", b"2"]


async def test_a_connection_closed_while_the_loop_was_busy_is_not_reused(loop_kind: str) -> None:
    async with opened(hello) as (door, server):
        await (await door.open("POST", {}, b"1")).read()
        # closed by the peer, but the loop has not run since
        there = server.calls[0]._writer.get_extra_info("socket")
        with socket.socket(fileno=os.dup(there.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)
        time.sleep(0.05)
        assert await (await door.open("POST", {}, b"2")).read() == b"hello"
        assert server.connections == 2


async def test_a_connection_closed_right_after_a_response_is_not_reused(loop_kind: str) -> None:
    async def begin(call: Call) -> None:
        await (hello(call) if call.body else call.begin_events())

    async with opened(begin) as (door, server):
        reply = await door.open("GET", {})
        there = server.calls[0]._writer.get_extra_info("socket")
        with socket.socket(fileno=os.dup(there.fileno())) as same:
            same.sendall(b"0\r\n\r\n")
            same.shutdown(socket.SHUT_RDWR)
        assert await reply.read() == b""
        assert await (await door.open("POST", {}, b"2")).read() == b"hello"
        assert server.connections == 2


async def test_bytes_received_without_a_request_close_an_idle_connection() -> None:
    async with opened(hello) as (door, server):
        await (await door.open("POST", {}, b"1")).read()
        await server.calls[0].raw(WHOLE.replace(b"hello", b"wrong"))
        while door._pool._kept:  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
        assert await (await door.open("POST", {}, b"2")).read() == b"hello"
        assert server.connections == 2


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_only_idempotent_requests_are_retried_after_a_lost_connection(
    method: str, loop_kind: str
) -> None:
    async def second_is_cut(call: Call) -> None:
        if len(server.calls) == 2:
            call.cut()
            raise ConnectionError
        await hello(call)

    body = b"x" if method == "POST" else None
    async with opened(second_is_cut) as (door, server):
        await (await door.open(method, {}, body)).read()
        if method == "POST":
            with pytest.raises(ChannelClosed, match=r"closed|broke") as broken:
                await door.open(method, {}, body)
            assert broken.value.delivered
            assert len(server.calls) == 2
        else:
            assert await (await door.open(method, {}, body)).read() == b"hello"
            assert len(server.calls) == 3


async def test_a_request_on_a_new_connection_is_not_retried() -> None:
    async def cut(call: Call) -> None:
        call.cut()
        raise ConnectionError

    async with opened(cut) as (door, server):
        with pytest.raises(ChannelClosed):
            await door.open("GET", {})
        assert len(server.calls) == 1


async def test_a_request_whose_response_has_begun_is_not_retried() -> None:
    async def half(call: Call) -> None:
        if len(server.calls) == 2:
            await call.raw(b"HTTP/1.1 200")
            await asyncio.sleep(0.05)
            call.cut()
            raise ConnectionError
        await hello(call)

    async with opened(half) as (door, server):
        await (await door.open("GET", {})).read()
        with pytest.raises(ChannelClosed):
            await door.open("GET", {})
        assert len(server.calls) == 2


async def test_the_most_recently_used_connection_is_reused_first() -> None:
    async def answer(call: Call) -> None:
        await call.answer(200, str(call._writer.get_extra_info("peername")[1]))

    async with opened(answer) as (door, _):
        first, second = await asyncio.gather(door.open("GET", {}), door.open("GET", {}))
        await first.read()
        await second.read()
        kept = door._pool._kept  # type: ignore[union-attr]
        assert len(kept) == 2
        last = kept[-1]
        await (await door.open("GET", {})).read()
        assert kept[-1] is last


async def test_idle_connections_are_closed_after_their_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pooling, "KEEP_ALIVE", 0.1)
    async with opened(hello) as (door, server):
        replies = await asyncio.gather(*(door.open("GET", {}) for _ in range(3)))
        assert server.open == 3
        assert {await reply.read() for reply in replies} == {b"hello"}
        while server.open:
            await asyncio.sleep(0.01)
        await (await door.open("GET", {})).read()
        assert server.connections == 4


async def test_an_expired_connection_is_not_reused_even_if_it_is_still_open() -> None:
    async with opened(hello) as (door, server):
        await (await door.open("POST", {}, b"x")).read()
        door._pool._kept[0].idle_since -= 5  # type: ignore[union-attr]
        await (await door.open("POST", {}, b"x")).read()
        assert server.connections == 2


# Streams, cancellation and closing


async def test_a_trickling_body_is_read_as_it_arrives(loop_kind: str) -> None:
    async def trickle(call: Call) -> None:
        raw = ANSWERS["trailers"]
        for i in range(len(raw)):
            await call.raw(raw[i : i + 1])
            await asyncio.sleep(0)

    async with opened(trickle) as (door, server):
        assert await (await door.open("GET", {})).read() == b"hello"
        reply = await door.open("GET", {})
        chunks = []
        while chunk := await reply.chunk():
            chunks.append(chunk)
        assert b"".join(chunks) == b"hello"
        assert await reply.chunk() == b""
        assert server.connections == 1


@pytest.mark.parametrize("stage", ["head", "read", "chunk", "close"])
async def test_a_connection_with_an_unread_response_is_closed(stage: str, loop_kind: str) -> None:
    gone = asyncio.Event()

    async def half(call: Call) -> None:
        if call.body == b"whole":
            await hello(call)
            return
        if stage != "head":
            await call.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        with contextlib.suppress(ConnectionError):
            await call.gone()
        gone.set()

    async def ask(door: HttpClient) -> None:
        reply = await door.open("POST", {}, b"half")
        if stage == "chunk":
            assert await reply.chunk() == b"hello"
            await reply.chunk()
        elif stage == "close":
            reply.close()
            with pytest.raises(ChannelClosed):
                while await reply.chunk():
                    pass
        else:
            await reply.read()

    async with opened(half) as (door, server):
        task = asyncio.ensure_future(ask(door))
        while not server.calls:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await gone.wait()
        assert await (await door.open("POST", {}, b"whole")).read() == b"hello"
        assert server.connections == 2


async def test_closing_a_response_wakes_its_reader() -> None:
    async def begin(call: Call) -> None:
        await call.begin_events()
        await call.gone()

    async with opened(begin) as (door, _):
        reply = await door.open("GET", {})
        asyncio.get_running_loop().call_later(0.02, reply.close)
        with pytest.raises(ChannelClosed):
            await reply.chunk()


async def test_closing_the_client_ends_requests_in_progress(loop_kind: str) -> None:
    async def silent(call: Call) -> None:
        await call.gone()

    async with opened(silent) as (door, server):
        task = asyncio.ensure_future(door.open("POST", {}, b"x"))
        while not server.calls:
            await asyncio.sleep(0.01)
        await door.close()
        with pytest.raises(ChannelClosed) as ended:
            await task
        assert ended.value.delivered
        with pytest.raises(ChannelClosed) as refused:
            await door.open("POST", {}, b"x")
        assert not refused.value.delivered


async def test_a_redirect_is_followed_on_pooled_connections() -> None:
    async def moved(call: Call) -> None:
        if call.path == "/mcp":
            await call.answer(307, "", Location="/there")
        elif call.path == "/there":
            await repeat(call)

    async with opened(moved) as (door, server):
        reply = await door.open("POST", {}, b"x")
        assert (reply.url, await reply.read()) == (server.url.replace("mcp", "there"), b"x")
    assert server.connections == 1


# Large requests


async def test_a_large_request_is_sent_completely(loop_kind: str) -> None:
    body = bytes(range(256)) * (32 << 10)
    async with opened(repeat) as (door, server):
        for _ in range(2):
            assert await (await door.open("POST", {}, body)).read() == body
        assert server.connections == 1


@contextlib.asynccontextmanager
async def deaf_server(answer: bytes) -> AsyncIterator[str]:
    """Return a server that reads a request's head, sends `answer`, and does not read the body.

    Without an answer it closes the connection.
    """
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer:
            writer.write(answer)
            await done.wait()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(20):
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        done.set()
        await asyncio.sleep(0)
        server.close()


async def test_a_partially_written_request_is_reported_as_not_delivered(loop_kind: str) -> None:
    async with deaf_server(b"") as url:
        door = HttpClient(EndpointUrl.parse(url))
        with pytest.raises(ChannelClosed) as cut:
            await door.open("POST", {}, b"x" * (32 << 20))
        assert not cut.value.delivered
        await door.close()


async def test_a_response_may_arrive_before_the_request_is_fully_sent(loop_kind: str) -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!"
    async with deaf_server(refusal) as url:
        door = HttpClient(EndpointUrl.parse(url))
        reply = await door.open("POST", {}, b"x" * (32 << 20))
        error, body = await reply.refusal()
        assert isinstance(error, HttpError)
        assert (error.status, body) == (413, b"no!")
        assert not door._pool._kept  # type: ignore[union-attr]
        await door.close()


async def test_cancelling_a_large_request_closes_the_connection(loop_kind: str) -> None:
    async with deaf_server(b"HTTP/1.1 100 Continue\r\n\r\n") as url:
        door = HttpClient(EndpointUrl.parse(url))
        task = asyncio.ensure_future(door.open("POST", {}, b"x" * (32 << 20)))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert not door._pool._lines  # type: ignore[union-attr]
        await door.close()


# Requests


async def test_the_client_sets_framing_headers_and_callers_set_the_others() -> None:
    async with opened(hello) as (door, server):
        await (await door.open("POST", {"X-A": "é"}, b"12")).read()
        theirs = {
            "HOST": "other.example",
            "user-agent": "mine",
            "Accept-Encoding": "gzip",
            "content-length": "7",
            "Transfer-Encoding": "chunked",
            "Connection": "close",
        }
        await (await door.open("POST", theirs, b"12")).read()
        await (await door.open("GET", {}, url=f"{server.url}/ä b?c=%20&d=é")).read()
        plain, special, got = server.calls
    assert plain.headers == {
        "host": f"127.0.0.1:{server.port}",
        "accept-encoding": "identity",
        "user-agent": "fairlead",
        "x-a": "é".encode().decode("latin-1"),
        "content-length": "2",
    }
    assert special.headers == {
        "host": "other.example",
        "user-agent": "mine",
        "accept-encoding": "gzip",
        "content-length": "2",
    }
    assert got.path == "/mcp/%C3%A4%20b?c=%20&d=%C3%A9"
    assert "content-length" not in got.headers


@pytest.mark.parametrize(
    "headers", [{"X": "1\n"}, {"X": "\r"}, {"X": "\0"}, {"X: 1\r\nY": "2"}, {"X Y": "2"}, {"": ""}]
)
async def test_invalid_header_names_and_values_are_not_sent(headers: dict[str, str]) -> None:
    async with opened(hello) as (door, server):
        for more in ({}, {"Host": "a.example"}):
            with pytest.raises(
                ChannelClosed, match="a request header has an invalid name or value"
            ) as refused:
                await door.open("POST", {**headers, **more}, b"x")
            assert not refused.value.delivered
        with pytest.raises(ChannelClosed, match="a request header has an invalid name or value"):
            await door.open("POST", {"X": "\ud800"}, b"x")
        assert server.connections == 0


async def test_requests_to_other_origins_are_rejected() -> None:
    async with opened(hello) as (door, server):
        with pytest.raises(ConnectFailed):
            await door.open("GET", {}, url="http://a.example/")
        assert server.connections == 0


# Connecting


async def test_connecting_to_an_unresponsive_address_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(host: str, port: int, *_: object) -> socket.socket:
        return await asyncio.Future()

    monkeypatch.setattr(pooling, "connect_host", never)
    door = HttpClient(EndpointUrl.parse("http://a.example"), connect_timeout=0.05)
    with pytest.raises(ConnectFailed, match=r"a\.example: no connection within 0\.05 s"):
        await door.open("GET", {})
    task = asyncio.ensure_future(door.open("GET", {}))
    await asyncio.sleep(0)
    await door.close()
    with pytest.raises(TransportError) as refused:
        await task
    assert not refused.value.delivered


async def test_a_closed_port_is_reported_as_a_connect_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        door = HttpClient(EndpointUrl.parse(f"http://127.0.0.1:{taken.getsockname()[1]}"))
        with pytest.raises(ConnectFailed, match="Could not connect to"):
            await door.open("POST", {}, b"x")
        await door.close()


@pytest.mark.parametrize("first", ["hangs", "fails"])
async def test_the_next_address_is_tried_after_a_failed_connection_attempt(
    first: str, monkeypatch: pytest.MonkeyPatch, loop_kind: str
) -> None:
    real, tried = dialling._connect, []

    async def connect(address: Any) -> socket.socket:
        tried.append(address[0])
        if address[0] == socket.AF_INET6:
            await asyncio.sleep(0 if first == "fails" else 60)
            raise OSError("no way")
        return await real(address)

    async def found(host: str, port: int, **_: Any) -> list[Any]:
        six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port))
        four = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        return [six, six, four]

    class Loop:
        def __getattr__(self, name: str) -> Any:
            return found if name == "getaddrinfo" else getattr(running, name)

    running = asyncio.get_running_loop()
    async with raw_server(hello) as server:
        with monkeypatch.context() as patch:
            patch.setattr(dialling, "_connect", connect)
            patch.setattr(dialling.asyncio, "get_running_loop", Loop)
            made = await dialling.connect_host("a.example", server.port)
        assert made.getpeername() == ("127.0.0.1", server.port)
        assert tried == [socket.AF_INET6, socket.AF_INET]
        made.close()


async def test_the_first_error_is_raised_if_no_address_accepts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connect(address: Any) -> socket.socket:
        raise OSError(address)

    monkeypatch.setattr(dialling, "_connect", connect)
    with pytest.raises(OSError, match="one"):
        await dialling._race(["one", "two"])  # type: ignore[list-item]


# A connection without a network


class Line:
    """A connection over a fake transport that records which callbacks were called."""

    def __init__(self) -> None:
        self.idle: list[Http1Connection] = []
        self.lost: list[Http1Connection] = []
        self.wire = Wire()
        self.connection = Http1Connection("a.example", self.idle.append, self.lost.append)
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]

    async def ask(self, body: bytes | None = None) -> "asyncio.Task[HttpResponse]":
        """Start a request and let the connection write until it has to wait."""
        asking = asyncio.ensure_future(self.connection.ask("http://a.example/", b"HEAD|", body))
        await asyncio.sleep(0)
        return asking

    async def answered(self, raw: bytes, body: bytes | None = None) -> HttpResponse:
        """Send a request and receive the response."""
        asking = await self.ask(body)
        self.connection.data_received(raw)
        async with asyncio.timeout(5):
            return await asking


@pytest.mark.parametrize(
    ("body", "writes"),
    [
        (None, [5]),
        (b"", [5]),
        (b"x" * AT_ONCE, [5 + AT_ONCE]),
        (b"x" * (AT_ONCE + 1), [5, AT_ONCE, 1]),
        (b"x" * (2 * AT_ONCE), [5, AT_ONCE, AT_ONCE]),
        (b"x" * (2 * AT_ONCE + 7), [5, AT_ONCE, AT_ONCE, 7]),
    ],
    ids=["none", "empty", "at once", "one more", "two pieces", "three pieces"],
)
async def test_only_a_large_request_is_written_in_chunks(
    body: bytes | None, writes: list[int]
) -> None:
    line = Line()
    assert line.connection.usable
    reply = await line.answered(WHOLE, body)
    assert line.wire.sizes == writes
    assert line.wire.written == b"HEAD|" + (body or b"")
    assert await reply.read() == b"hello"
    assert (line.idle, line.lost, line.connection.usable) == ([line.connection], [], True)


async def test_a_large_request_waits_until_the_server_reads_again() -> None:
    line = Line()
    line.connection.pause_writing()
    asking = await line.ask(b"x" * (AT_ONCE + 1))
    assert line.wire.sizes == [5]
    for _ in range(2):  # each chunk may have to wait for the server to read
        line.connection.resume_writing()
        line.connection.pause_writing()
        await asyncio.sleep(0)
    assert line.wire.sizes == [5]  # the transport was full again before the next chunk was written
    line.connection.resume_writing()
    await asyncio.sleep(0)
    assert line.wire.sizes == [5, AT_ONCE, 1]
    line.connection.data_received(WHOLE)
    assert (await asking).status == 200
    assert line.idle == [line.connection]


async def test_a_small_request_does_not_wait_for_the_server_to_read() -> None:
    line = Line()
    line.connection.pause_writing()
    await line.answered(WHOLE, b"x" * AT_ONCE)
    assert line.wire.sizes == [5 + AT_ONCE]


async def test_a_response_before_the_end_of_the_request_closes_the_connection() -> None:
    line = Line()
    line.connection.pause_writing()
    reply = await line.answered(WHOLE, b"x" * (AT_ONCE + 1))
    assert line.wire.sizes == [5]
    assert await reply.read() == b"hello"
    assert (line.idle, line.wire.closing) == ([], True)


async def test_state_of_a_request_does_not_affect_the_next_request_on_the_same_connection() -> None:
    line = Line()
    padding = b"X: " + b"y" * (MAX_HEAD - 2000) + b"\r\n"
    for _ in range(3):
        asking = await line.ask()
        assert (line.connection.heard, line.connection.usable) == (False, False)
        line.connection.data_received(b"HTTP/1.1 200 Fine\r\n" + padding)
        assert (line.connection.heard, line.connection.usable) == (True, False)
        line.connection.data_received(b"Content-Length: 2\r\n\r\nok")
        reply = await asking
        assert (reply.reason, len(reply.headers), await reply.read()) == ("Fine", 2, b"ok")
        assert line.connection.usable
    assert line.idle == [line.connection] * 3


async def test_no_request_is_sent_on_a_closing_connection() -> None:
    line = Line()
    line.wire.closing = True
    assert not line.connection.usable
    with pytest.raises(ChannelClosed, match=r": a\.example closed the connection$") as refused:
        await line.connection.ask("http://a.example/", b"GET", None)
    assert refused.value.delivered is False
    assert line.wire.sizes == []


@pytest.mark.parametrize(
    ("size", "heard", "exc", "text", "delivered"),
    [
        (AT_ONCE + 1, b"", None, "a.example closed the connection", False),
        (1, b"", None, "a.example closed the connection without a response", True),
        (1, b"", OSError("boom"), "a.example closed the connection without a response", True),
        (1, b"HTTP", None, "the connection to a.example broke in the middle of a response", True),
        (1, b"HTTP", OSError("boom"), "the connection to a.example broke: boom", True),
    ],
    ids=["unsent", "unanswered", "reset", "half a response", "half a response, reset"],
)
async def test_a_lost_connection_reports_whether_the_request_may_have_arrived(
    size: int, heard: bytes, exc: Exception | None, text: str, delivered: bool
) -> None:
    line = Line()
    line.connection.pause_writing()
    asking = await line.ask(b"x" * size)
    if heard:
        line.connection.data_received(heard)
    line.connection.connection_lost(exc)
    with pytest.raises(ChannelClosed) as lost:
        async with asyncio.timeout(5):
            await asking
    assert (lost.value.reason, lost.value.delivered) == (text, delivered)
    if (exc, heard, delivered) == (None, b"", True):
        assert isinstance(lost.value.__cause__, EOFError)
    else:
        assert lost.value.__cause__ is exc
    assert (line.idle, line.lost, line.wire.closing) == ([], [line.connection], True)


async def test_the_loss_of_an_idle_connection_raises_no_error() -> None:
    line = Line()
    await line.answered(WHOLE)
    line.connection.connection_lost(None)
    assert (line.idle, line.lost) == ([line.connection], [line.connection])


async def test_a_cancelled_request_closes_the_connection() -> None:
    line = Line()
    asking = await line.ask()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (line.wire.closing, line.connection.usable) == (True, False)
    line.connection.connection_lost(None)  # does not call the `lost` callback a second time


async def test_cancelling_a_request_on_a_lost_connection_logs_no_error() -> None:
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: problems.append(about))
    line = Line()
    asking = await line.ask()
    line.connection.connection_lost(None)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    del asking, line
    gc.collect()
    assert problems == []


async def test_bytes_received_without_a_request_close_the_connection() -> None:
    line = Line()
    line.connection.data_received(WHOLE)
    assert (line.wire.closing, line.connection.heard, line.idle) == (True, False, [])


@pytest.mark.parametrize(
    ("head", "body", "kept"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", b"", True),
        (b"HTTP/1.1 204 No Content\r\n", b"", True),
        (b"HTTP/1.1 304 Not Modified\r\n", b"", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n", b"0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n", b"", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n", b"", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n", b"", True),
    ],
    ids=["length", "204", "304", "chunked", "close", "1.0", "1.0 kept"],
)
async def test_a_connection_is_kept_after_a_response_unless_it_must_close(
    head: bytes, body: bytes, kept: bool
) -> None:
    line = Line()
    reply = await line.answered(head + b"\r\n" + body)
    assert (reply.complete, await reply.read()) == (True, b"")
    assert (line.idle, line.wire.closing) == ([line.connection] * kept, not kept)


@pytest.mark.parametrize(
    ("head", "complete"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", False),
    ],
    ids=["until close", "length", "chunked"],
)
async def test_only_a_body_without_a_length_ends_with_the_connection(
    head: bytes, complete: bool
) -> None:
    line = Line()
    reply = await line.answered(head + b"\r\n")
    assert not reply.complete
    line.connection.eof_received()
    assert (reply.complete, line.idle, line.wire.closing) == (complete, [], complete)
    line.connection.connection_lost(None)
    if not complete:
        with pytest.raises(ChannelClosed, match="in the middle of a response"):
            await reply.read()
    else:
        assert await reply.read() == b""


async def test_end_of_file_on_an_idle_connection_is_ignored() -> None:
    line = Line()
    assert line.connection.eof_received() is None
    assert (line.idle, line.wire.closing) == ([], False)


@pytest.mark.parametrize(("extra", "refused"), [(0, False), (1, True)])
async def test_response_headers_may_be_exactly_as_long_as_the_limit(
    extra: int, refused: bool
) -> None:
    line = Line()
    names = len(b"Content-Length") + len(b"0") + len(b"X")
    value = b"y" * (MAX_HEAD - names + extra)
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: " + value + b"\r\n\r\n"
    if refused:
        with pytest.raises(
            ChannelClosed, match=r"invalid HTTP response: headers over 65536 bytes$"
        ):
            await line.answered(raw)
    else:
        assert (await line.answered(raw)).header("x") == value.decode()
    assert line.wire.closing == refused


@pytest.mark.parametrize(("extra", "refused"), [(0, False), (1, True)])
async def test_an_incomplete_response_head_may_be_exactly_as_long_as_the_limit(
    extra: int, refused: bool
) -> None:
    line = Line()
    asking = await line.ask()
    start = b"HTTP/1.1 200 OK\r\nX: "
    line.connection.data_received(start)
    line.connection.data_received(b"y" * (MAX_HEAD - len(start) + extra))
    assert line.wire.closing == refused
    if refused:
        with pytest.raises(
            ChannelClosed, match="invalid HTTP response: more than 65536 bytes without body data"
        ):
            await asking
    else:
        asking.cancel()


async def test_body_data_resets_the_count_of_bytes_outside_the_body() -> None:
    line = Line()
    asking = await line.ask()
    line.connection.data_received(CHUNKED)
    for _ in range(3):
        line.connection.data_received(b"1;" + b"x" * (MAX_HEAD - 2000))
        line.connection.data_received(b"\r\ny\r\n")
    line.connection.data_received(b"0\r\n\r\n")
    assert await (await asking).read() == b"yyy"
    assert line.idle == [line.connection]


async def test_reading_pauses_at_the_limit_and_resumes_when_the_body_is_read() -> None:
    line = Line()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * MAX_UNREAD)
    reply = await line.answered(head)
    line.connection.data_received(b"x" * MAX_UNREAD)
    assert line.wire.pauses == 0
    line.connection.data_received(b"x")
    # Bytes that the transport had already read when it was paused.
    line.connection.data_received(b"x")
    assert (line.wire.pauses, line.wire.resumes) == (1, 0)
    assert len(await reply.chunk()) == MAX_UNREAD + 2
    assert (line.wire.pauses, line.wire.resumes) == (1, 1)
    line.connection.data_received(b"x")
    assert await reply.chunk() == b"x"
    assert (line.wire.pauses, line.wire.resumes) == (1, 1)
    reply.close()
    assert line.wire.closing


async def test_reading_resumes_when_a_response_ends_while_paused() -> None:
    line = Line()
    size = MAX_UNREAD + 2
    reply = await line.answered(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
    line.connection.data_received(b"x" * (size - 1))
    assert line.wire.paused
    line.connection.data_received(b"x")
    assert (line.wire.paused, line.idle) == (False, [line.connection])
    assert len(await reply.read()) == size


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"SSH-2.0", None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "other than chunked"),
        (b"HTTP/1.1 101 Up\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", None),
    ],
    ids=["no HTTP", "encoding", "upgrade"],
)
async def test_an_invalid_response_fails_the_request(raw: bytes, why: str | None) -> None:
    line = Line()
    asking = await line.ask()
    line.connection.data_received(raw)
    assert line.wire.closing
    with pytest.raises(ChannelClosed, match="sent an invalid HTTP response: .") as bad:
        await asking
    assert bad.value.__cause__ is not None
    assert why is None or str(bad.value).endswith(why)


async def test_a_second_response_to_one_request_is_ignored() -> None:
    line = Line()
    reply = await line.answered(WHOLE + WHOLE.replace(b"hello", b"other"))
    assert (await reply.read(), reply.reason) == (b"hello", "OK")
    assert (line.idle, line.wire.closing) == ([], True)


async def test_a_connection_is_quiet_if_its_socket_has_no_unread_data() -> None:
    line = Line()
    assert line.connection.quiet  # no socket is assigned yet
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        line.connection.socket = ours
        assert line.connection.quiet
        theirs.send(b"x")
        assert not line.connection.quiet
        assert ours.recv(2) == b"x"  # `quiet` did not consume the byte
        assert line.connection.quiet
        theirs.close()
        assert not line.connection.quiet
        ours.close()
        assert not line.connection.quiet
