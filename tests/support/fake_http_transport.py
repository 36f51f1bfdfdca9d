"""A transport without a socket, for the server's HTTP protocols."""

import asyncio
from typing import Any

__all__ = ["FakeHttpTransport", "turns"]


class FakeHttpTransport(asyncio.Transport):
    """A transport that records written bytes and calls of its methods."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed_at: float | None = None
        self.aborted = self.eof = self.is_tls = False
        self.buffered = 0
        self.reading = True
        self.protocol: Any = None

    def write(self, data: Any) -> None:
        assert not self.eof, "write() was called after write_eof()"
        self.written += data

    def write_eof(self) -> None:
        self.eof = True

    def can_write_eof(self) -> bool:
        return not self.is_tls

    def is_closing(self) -> bool:
        return self.closed_at is not None

    def close(self) -> None:
        if self.closed_at is None:
            self.closed_at = asyncio.get_running_loop().time()

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def get_protocol(self) -> Any:
        return self.protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 9) if name in ("peername", "sockname") else default


async def turns(count: int = 10) -> None:
    """Run `count` iterations of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)
