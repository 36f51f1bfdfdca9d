"""Bodies of HTTP responses, read chunk by chunk or completely."""

import asyncio
import gzip
from typing import Any

import pytest

from fairlead.errors import ChannelClosed, HttpError, TransportError
from fairlead.transport.http.client.http1.response import HttpResponse, media_type

MAX_UNREAD = 256 << 10


class FakeLine:
    """A stand-in for a connection that records calls."""

    def __init__(self) -> None:
        self.resumed = self.dropped = 0

    def resume(self) -> None:
        self.resumed += 1

    def drop(self) -> None:
        self.dropped += 1


def response(status: int = 200, **fields: str) -> tuple[HttpResponse, FakeLine]:
    line: Any = FakeLine()
    made = HttpResponse(line, asyncio.get_running_loop(), "http://h/")
    raw = {name.replace("_", "-").encode(): value.encode() for name, value in fields.items()}
    made.begin(status, b"Reason", raw)
    return made, line


@pytest.mark.parametrize(
    ("status", "ok"), [(199, False), (200, True), (299, True), (300, False), (404, False)]
)
async def test_a_response_is_ok_only_for_a_2xx_status(status: int, ok: bool) -> None:
    assert response(status)[0].ok is ok


async def test_response_headers_are_looked_up_by_name() -> None:
    made, _ = response(content_type="Text/Event-Stream; charset=x", x_a="1")
    assert (made.content_type, made.streams, made.reason) == ("text/event-stream", True, "Reason")
    assert (made.header("X-A"), made.header("x-b")) == ("1", None)
    assert made.headers == {"content-type": "Text/Event-Stream; charset=x", "x-a": "1"}
    plain, _ = response()
    assert (plain.content_type, plain.streams) == ("", False)
    assert media_type(" A/B ;c") == "a/b"


async def test_body_chunks_are_returned_as_they_arrive() -> None:
    made, line = response()
    made.take(b"a")
    made.take(b"b")
    assert (made.seen, await made.chunk(), line.resumed) == (2, b"ab", 1)
    reading = asyncio.ensure_future(made.chunk())
    await asyncio.sleep(0)
    made.take(b"c")
    assert (await reading, line.resumed) == (b"c", 2)
    reading = asyncio.ensure_future(made.chunk())
    await asyncio.sleep(0)
    made.end()
    assert (await reading, await made.chunk(), line.dropped) == (b"", b"", 0)


async def test_reading_from_the_socket_is_not_resumed_after_the_last_chunk() -> None:
    made, line = response()
    made.take(b"a")
    made.end()
    assert (await made.chunk(), line.resumed) == (b"a", 0)


async def test_an_unread_body_of_more_than_256_kib_pauses_reading() -> None:
    made, _ = response()
    made.take(bytes(MAX_UNREAD))
    assert not made.full
    made.take(b"x")
    assert made.full
    await made.chunk()
    made.take(bytes(MAX_UNREAD))
    assert not made.full, "reading a chunk did not reset the unread size"


async def test_reading_a_response_returns_at_the_end_of_the_body() -> None:
    made, line = response()
    made.take(b"a")
    reading = asyncio.ensure_future(made.read())
    await asyncio.sleep(0)
    assert line.resumed == 1
    made.take(b"b")
    await asyncio.sleep(0)
    assert not reading.done()
    made.end()
    assert (await reading, line.dropped) == (b"ab", 0)


@pytest.mark.parametrize(("size", "fits"), [(10, True), (11, False)])
@pytest.mark.parametrize("packed", [False, True])
async def test_reading_a_body_over_the_limit_raises_an_error(
    size: int, fits: bool, packed: bool
) -> None:
    made, line = response(content_encoding="gzip") if packed else response()
    body = b"x" * size
    made.take(gzip.compress(body) if packed else body)
    if fits:
        made.end()
        assert await made.read(10) == body
    else:
        with pytest.raises(TransportError, match="^The body is over the limit of 10 bytes$") as no:
            await made.read(10)
        assert no.value.public == "sent more than 10 bytes"
        assert (line.dropped, made.complete) == (1, True)


@pytest.mark.parametrize(
    ("encoding", "packed"), [("", False), (" Identity ", False), ("gzip", True)]
)
async def test_a_compressed_body_is_decompressed(encoding: str, packed: bool) -> None:
    made, _ = response(content_encoding=encoding)
    body = gzip.compress(b"hello")
    made.take(body)
    made.end()
    assert await made.read() == (b"hello" if packed else body)


async def test_a_broken_body_also_raises_an_error_in_waiting_readers() -> None:
    gone = ChannelClosed("gone")
    made, _ = response()
    reading = asyncio.ensure_future(made.read())
    await asyncio.sleep(0)
    made.end(gone)
    with pytest.raises(ChannelClosed) as seen:
        await reading
    assert seen.value is gone
    made, _ = response()
    made.take(b"a")
    made.end(gone)
    assert await made.chunk() == b"a", "chunks before the error are still returned"
    with pytest.raises(ChannelClosed, match="gone"):
        await made.chunk()


async def test_closing_a_response_closes_its_connection_once() -> None:
    made, line = response()
    made.close()
    made.close()
    assert line.dropped == 1
    with pytest.raises(ChannelClosed, match="the response was closed before its end"):
        await made.read()
    done, kept = response()
    done.end()
    done.close()
    assert kept.dropped == 0


async def test_cancelling_a_reader_closes_the_connection() -> None:
    made, line = response()
    reading = asyncio.ensure_future(made.chunk())
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait((reading,))
    assert line.dropped == 1


@pytest.mark.parametrize(
    ("body", "text"), [(b" no \n", "no"), (b"", "Reason"), (b" ", "Reason"), (b"\xff", "\ufffd")]
)
async def test_an_error_response_becomes_an_exception_with_its_body(body: bytes, text: str) -> None:
    made, _ = response(404, x_a="1")
    made.take(body)
    made.end()
    error, raw = await made.refusal()
    assert isinstance(error, HttpError)
    assert (error.status, error.body, error.headers["x-a"], raw) == (404, text, "1", body)


async def test_the_body_of_an_error_response_over_one_mebibyte_is_omitted() -> None:
    made, _ = response(500)
    made.take(bytes((1 << 20) + 1))
    error, raw = await made.refusal()
    assert (error.body, raw) == ("Reason", b"")
