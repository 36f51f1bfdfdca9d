"""Decompression of response bodies that are compressed although `identity` was requested."""

import zlib
from typing import Any

from .....errors import ChannelClosed

__all__ = ["Decompressor"]

GZIP, ZLIB, BARE = 31, 15, -15  # values of the `wbits` parameter of zlib


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
        # A gzip file may consist of several members, but HTTP servers do not send such bodies. Many
        # empty members would take time quadratic in the length of the body.
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
