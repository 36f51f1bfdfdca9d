"""HTTP responses whose body is read, and decompressed, as it arrives."""

import asyncio
import zlib
from functools import lru_cache
from typing import Any, Protocol

from .....errors import ChannelClosed, HttpError, TransportError
from .....wire import MAX_MESSAGE

__all__ = ["BodySource", "Decompressor", "HttpResponse", "media_type"]

GZIP, ZLIB, BARE = 31, 15, -15  # values of zlib's `wbits` for gzip, zlib and raw streams


class Decompressor:
    """Incremental decompressor that limits the size of each decompressed chunk."""

    def __init__(self, encoding: str) -> None:
        """Select the format by the value of `Content-Encoding`.

        Raises:
            ChannelClosed: The encoding is not gzip or deflate.
        """
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise ChannelClosed(
                f"unsupported content encoding {encoding!r}: expected gzip or deflate"
            )
        self._gzip = encoding != "deflate"
        self._inflate: Any = None
        self._packed = b""

    def feed(self, packed: bytes) -> None:
        self._packed += packed

    def take(self, most: int) -> bytes:
        """Return up to `most` decompressed bytes, or nothing if more input is needed.

        Raises:
            ChannelClosed: The data is not valid for the encoding.
        """
        if not self._packed:
            return b""
        # Created with the first bytes, because they show which form of `deflate` the server uses.
        if self._inflate is None:
            self._inflate = zlib.decompressobj(GZIP if self._gzip else _kind(self._packed))
        try:
            plain: bytes = self._inflate.decompress(self._packed, most)
        except zlib.error as exc:
            raise ChannelClosed(f"invalid compressed body: {exc}") from exc
        # A gzip file may consist of several members, but HTTP servers do not send such bodies.
        # They are rejected, because many empty members would take time quadratic in the length of
        # the body.
        if self._inflate.unused_data:
            raise ChannelClosed("invalid compressed body: data after its end")
        self._packed = self._inflate.unconsumed_tail
        return plain

    def finish(self) -> None:
        """Check that the compressed data is complete.

        Raises:
            ChannelClosed: The data ends too early.
        """
        if self._inflate is not None and not self._inflate.eof:
            raise ChannelClosed("invalid compressed body: it is truncated")


def _kind(packed: bytes) -> int:
    """Detect whether `deflate` data has a zlib header; some servers omit it, against RFC 9110."""
    return ZLIB if packed[0] & 15 == 8 else BARE


MAX_ERROR_BODY = 1 << 20  # bytes of the body of an error response; a longer body is ignored
MAX_UNREAD = 256 << 10  # bytes of a body that are buffered before reading from the socket is paused


class BodySource(Protocol):
    """The connection that a body arrives on."""

    def resume(self) -> None:
        """Resume reading, if it was paused because too much of the body was unread."""

    def drop(self) -> None:
        """Close the connection immediately."""


class HttpResponse:
    """A response whose body is filled by its connection and read by the caller."""

    status: int
    reason: str
    content_type: str  # in lower case, without parameters

    def __init__(self, source: BodySource, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self.url = url
        self.complete = False  # True once the body is complete or the connection has failed
        self.seen = 0  # bytes of the body received so far
        self._source = source
        self._loop = loop
        self._fields: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._size = 0  # bytes in `_pieces`
        self._most = MAX_UNREAD  # limit of `_size`
        self._whole = False  # True if the reader waits for the complete body
        self._waiter: asyncio.Future[None] | None = None
        self._error: ChannelClosed | None = None
        self._unpacker: Decompressor | None = None

    # Methods for the connection

    @property
    def full(self) -> bool:
        return self._size > self._most

    def begin(self, status: int, reason: bytes, fields: dict[bytes, bytes]) -> None:
        self.status = status
        self.reason = reason.decode("latin-1")
        self._fields = fields
        kind = fields.get(b"content-type")
        self.content_type = media_type(kind.decode("latin-1")) if kind is not None else ""

    def take(self, piece: bytes) -> None:
        self._pieces.append(piece)
        size = len(piece)
        self._size += size
        self.seen += size
        # Do not wake a reader of the complete body for every piece: this saves task switches.
        if self._waiter is not None and not (self._whole and not self.full):
            self._wake()

    def end(self, error: ChannelClosed | None = None) -> None:
        self.complete = True
        self._error = error
        if self._waiter is not None:
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Methods for the reader

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def streams(self) -> bool:
        return self.content_type == "text/event-stream"

    @property
    def headers(self) -> dict[str, str]:
        """All headers: names in lower case, values of repeated headers joined with a comma."""
        return {_text(name): _text(value) for name, value in self._fields.items()}

    def header(self, name: str) -> str | None:
        value = self._fields.get(name.lower().encode())
        return None if value is None else _text(value)

    async def read(self, limit: int = MAX_MESSAGE) -> bytes:
        """Return the complete, decompressed body.

        Raises:
            ChannelClosed: The connection broke first, or the compressed data is invalid.
            TransportError: The body is longer than `limit`.
        """
        try:
            if self._is_packed():
                return await self._read_packed(limit)
            # A limit instead of back-pressure, because the complete body is needed.
            self._most, self._whole = limit, True
            if not self.complete:
                self._source.resume()
            while not self.complete and not self.full:
                await self._more()
            if self.full:
                raise _too_long(limit)
            if self._error is not None:
                raise self._error
        except BaseException:
            self.close()
            raise
        pieces, self._pieces, self._size = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _read_packed(self, limit: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while piece := await self._unpacked():
            size += len(piece)
            if size > limit:
                raise _too_long(limit)
            pieces.append(piece)
        return b"".join(pieces)

    async def chunk(self) -> bytes:
        """Return the next received part of the body, or `b""` at its end.

        Raises:
            ChannelClosed: The connection broke, or the compressed data is invalid.
        """
        try:
            return await (self._unpacked() if self._is_packed() else self._arrived())
        except BaseException:
            self.close()
            raise

    async def _unpacked(self) -> bytes:
        unpacker = self._unpacker
        if unpacker is None:
            encoding = (self.header("content-encoding") or "").strip().lower()
            unpacker = self._unpacker = Decompressor(encoding)
        while True:
            if plain := unpacker.take(MAX_UNREAD):
                return plain
            packed = await self._arrived()
            if not packed:
                unpacker.finish()
                return b""
            unpacker.feed(packed)

    async def _arrived(self) -> bytes:
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self.complete:
                return b""
            await self._more()
        pieces, self._pieces, self._size = self._pieces, [], 0
        if not self.complete:
            self._source.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _more(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def close(self) -> None:
        """Discard the response; its connection is closed if the body is incomplete."""
        if not self.complete:
            self.end(ChannelClosed("the response was closed before its end"))
            self._source.drop()

    async def refusal(self) -> tuple[HttpError, bytes]:
        """Return the response as an error, with the bytes of its body."""
        try:
            body = await self.read(MAX_ERROR_BODY)
        # The status is more important than the body, so a body that cannot be read is left out.
        except TransportError:
            body = b""
        text = body.decode("utf-8", "replace").strip() or self.reason
        return HttpError(self.status, text, self.headers), body

    def _is_packed(self) -> bool:
        encoding = self._fields.get(b"content-encoding")
        return encoding is not None and encoding.strip().lower() not in (b"", b"identity")


@lru_cache(maxsize=64)
def media_type(value: str) -> str:
    """Return the media type of a `Content-Type` value, without parameters."""
    return value.partition(";")[0].strip().lower()


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _too_long(limit: int) -> TransportError:
    return TransportError(
        f"The body is over the limit of {limit} bytes", public=f"sent more than {limit} bytes"
    )
