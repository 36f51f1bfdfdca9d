"""The response to an HTTP request: its head, and a body that is read as it arrives."""

import asyncio
from functools import lru_cache
from typing import Protocol

from .....errors import ChannelClosed, HttpError, TransportError
from .....wire import MAX_MESSAGE
from .decompression import Decompressor

__all__ = ["BodySource", "HttpResponse", "media_type"]

MAX_ERROR_BODY = 1 << 20  # bytes that are read of a refusal
MAX_UNREAD = 256 << 10  # bytes of a body that wait for their reader before the server has to


class BodySource(Protocol):
    """The connection that a body arrives on."""

    def resume(self) -> None:
        """Read on, if reading was paused because too much of the body was unread."""

    def drop(self) -> None:
        """Close the connection, whatever is under way."""


class HttpResponse:
    """A response whose body has not been read yet. Its connection fills it."""

    __slots__ = (
        "_error",
        "_fields",
        "_loop",
        "_most",
        "_pieces",
        "_size",
        "_source",
        "_unpacker",
        "_waiter",
        "_whole",
        "complete",
        "content_type",
        "reason",
        "seen",
        "status",
        "url",
    )

    status: int
    reason: str
    content_type: str  # in lower case, without parameters

    def __init__(self, source: BodySource, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self.url = url
        self.complete = False  # all of it has arrived, or will not
        self.seen = 0  # bytes of the body so far
        self._source = source
        self._loop = loop
        self._fields: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._size = 0  # of those
        self._most = MAX_UNREAD  # of them
        self._whole = False  # the reader wants nothing before the end
        self._waiter: asyncio.Future[None] | None = None
        self._error: ChannelClosed | None = None
        self._unpacker: Decompressor | None = None

    # For its connection

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

    # For its reader

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def streams(self) -> bool:
        return self.content_type == "text/event-stream"

    @property
    def headers(self) -> dict[str, str]:
        """All of them, names in lower case; values of one name are joined."""
        return {_text(name): _text(value) for name, value in self._fields.items()}

    def header(self, name: str) -> str | None:
        value = self._fields.get(name.lower().encode())
        return None if value is None else _text(value)

    async def read(self, limit: int = MAX_MESSAGE) -> bytes:
        """Return the whole body, unpacked.

        Raises:
            ChannelClosed: The connection broke first, or the body is not packed properly.
            TransportError: The body is longer than `limit`.
        """
        try:
            if self._is_packed():
                return await self._read_packed(limit)
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
        """Return what has come of the body; nothing at its end. Raises `ChannelClosed`."""
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
        """Discard the response; a connection with unread bytes is closed."""
        if not self.complete:
            self.end(ChannelClosed("the answer was not read to its end"))
            self._source.drop()

    async def refusal(self) -> tuple[HttpError, bytes]:
        """The reply as an error, and the bytes of its body."""
        try:
            body = await self.read(MAX_ERROR_BODY)
        except TransportError:
            body = b""
        text = body.decode("utf-8", "replace").strip() or self.reason
        return HttpError(self.status, text, self.headers), body

    def _is_packed(self) -> bool:
        encoding = self._fields.get(b"content-encoding")
        return encoding is not None and encoding.strip().lower() not in (b"", b"identity")


@lru_cache(maxsize=64)
def media_type(value: str) -> str:
    """What a `Content-Type` says, without its parameters."""
    return value.partition(";")[0].strip().lower()


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _too_long(limit: int) -> TransportError:
    return TransportError(
        f"The body is over the limit of {limit} bytes", public=f"sent more than {limit} bytes"
    )
