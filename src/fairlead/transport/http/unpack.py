"""Bodies that came compressed although we asked for plain ones."""

import zlib
from typing import Any

from ...errors import ChannelClosed

__all__ = ["Unpacker"]

GZIP, ZLIB, BARE = 31, 15, -15  # what zlib calls them


class Unpacker:
    """Unpacks a body as it comes, never more at once than was asked for."""

    def __init__(self, encoding: str) -> None:
        """Raises `ChannelClosed` if it is none that we know."""
        if encoding not in ("gzip", "x-gzip", "deflate"):
            why = f"the answer is packed as {encoding!r}, which was not asked for"
            raise ChannelClosed(why)
        self._gzip = encoding != "deflate"
        self._inflate: Any = None
        self._packed = b""

    def feed(self, packed: bytes) -> None:
        self._packed += packed

    def take(self, most: int) -> bytes:
        """What can be unpacked; nothing if more has to be fed. Raises `ChannelClosed`."""
        while self._packed:
            if self._inflate is None and self._gzip:
                self._inflate = zlib.decompressobj(GZIP)
            elif self._inflate is None:  # some leave the wrapping out, against the standard
                self._inflate = zlib.decompressobj(ZLIB if self._packed[0] & 15 == 8 else BARE)
            inflate = self._inflate
            try:
                plain = inflate.decompress(self._packed, most)
            except zlib.error as exc:
                raise ChannelClosed(f"the body is not packed properly: {exc}") from exc
            self._packed = inflate.unconsumed_tail
            if inflate.eof:
                # gzip may come in several members; what follows a deflated body is nothing.
                self._packed = inflate.unused_data if self._gzip else b""
                if self._packed:
                    self._inflate = None
            if plain:
                return plain
        return b""

    def finish(self) -> None:
        """There is no more. Raises `ChannelClosed` if there should be."""
        if self._inflate is not None and not self._inflate.eof:
            raise ChannelClosed("the body is not packed properly: it ends too early")
