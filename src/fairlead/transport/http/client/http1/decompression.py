"""Bodies that come compressed although we asked for plain ones."""

import zlib
from typing import Any

from .....errors import ChannelClosed

__all__ = ["Decompressor"]

GZIP, ZLIB, BARE = 31, 15, -15  # what zlib calls them


class Decompressor:
    """Unpacks a body as it comes, never more at once than was asked for."""

    def __init__(self, encoding: str) -> None:
        """Raises `ChannelClosed` if it is none that we know."""
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise ChannelClosed(f"the answer is packed as {encoding!r}, which was not asked for")
        self._gzip = encoding != "deflate"
        self._inflate: Any = None
        self._packed = b""

    def feed(self, packed: bytes) -> None:
        self._packed += packed

    def take(self, most: int) -> bytes:
        """What can be unpacked; nothing if more has to be fed. Raises `ChannelClosed`."""
        if not self._packed:
            return b""
        if self._inflate is None:
            self._inflate = zlib.decompressobj(GZIP if self._gzip else _kind(self._packed))
        try:
            plain: bytes = self._inflate.decompress(self._packed, most)
        except zlib.error as exc:
            raise ChannelClosed(f"the body is not packed properly: {exc}") from exc
        # Members of gzip may follow each other, but nobody sends that, and a body of empty ones
        # takes time that grows with the square of its length.
        if self._inflate.unused_data:
            raise ChannelClosed("the body is not packed properly: something follows it")
        self._packed = self._inflate.unconsumed_tail
        return plain

    def finish(self) -> None:
        """There is no more. Raises `ChannelClosed` if there should be."""
        if self._inflate is not None and not self._inflate.eof:
            raise ChannelClosed("the body is not packed properly: it ends too early")


def _kind(packed: bytes) -> int:
    """Some leave the wrapping of `deflate` out, against the standard."""
    return ZLIB if packed[0] & 15 == 8 else BARE
