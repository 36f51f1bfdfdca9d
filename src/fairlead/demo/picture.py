"""A picture without a picture library: the few bytes that make a PNG."""

import struct
import zlib
from collections.abc import Callable

__all__ = ["draw_sunrise", "encode_png"]

Pixel = tuple[int, int, int]  # red, green, blue; 0 to 255


def encode_png(width: int, height: int, pixel: Callable[[int, int], Pixel]) -> bytes:
    """A PNG whose pixels a function of x and y decides."""
    rows = b"".join(
        b"\0" + b"".join(bytes(pixel(x, y)) for x in range(width)) for y in range(height)
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits per channel, RGB
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def draw_sunrise(size: int = 32) -> bytes:
    """A sun over the sea."""

    def pixel(x: int, y: int) -> Pixel:
        if y >= size * 5 // 8:
            return (20, 60 + 2 * y, 120)
        if (x - size / 2) ** 2 + (y - size * 5 / 8) ** 2 < (size / 4) ** 2:
            return (255, 210, 80)
        return (250 - 3 * y, 140 + 2 * y, 110 + 2 * y)

    return encode_png(size, size, pixel)


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
