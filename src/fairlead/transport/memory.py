"""Pairs of connected channels in one process: encoded frames without file descriptors."""

import asyncio

from ..protocol.envelope import TransportContext
from ..wire import MAX_MESSAGE
from .line_channel import HIGH_WATER, LineChannel

__all__ = ["memory_pair"]


def memory_pair(*, limit: int = MAX_MESSAGE) -> tuple[LineChannel, LineChannel]:
    """Return two connected channels.

    Messages sent on one of them are encoded, decoded and delivered by the other.
    """
    context = TransportContext(transport_type="memory")
    left, right = LineChannel(context, limit=limit), LineChannel(context, limit=limit)
    there, back = _Pipe(left, right), _Pipe(right, left)
    left.attach(back, there)
    right.attach(there, back)
    return left, right


class _Pipe:
    """One direction of a pair: the sink of one channel and the source of the other."""

    def __init__(self, writer: LineChannel, reader: LineChannel) -> None:
        self._loop = asyncio.get_running_loop()
        self._writer = writer
        self._reader = reader
        self._queued: list[bytes] = []
        self._size = 0
        self._paused = True
        self._ended = False
        self._scheduled = False

    # As a sink

    def write(self, data: bytes) -> None:
        if self._ended:
            return
        self._queued.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER and not self._writer.congested:
            self._writer.pause_writing()
        self._schedule()

    def get_write_buffer_size(self) -> int:
        return self._size

    def abort(self) -> None:
        self._queued.clear()
        self._size = 0
        self.close()

    # As a source

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._schedule()

    def close(self) -> None:
        """Close either end. Bytes that were written before are still delivered."""
        self._ended = True
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            # Deliver in a later loop iteration, because `send` must not call the peer's handlers.
            self._loop.call_soon(self._move)

    def _move(self) -> None:
        """Deliver the writes of one event loop iteration as one chunk, as a pipe does."""
        self._scheduled = False
        if not self._paused:
            chunk = b"".join(self._queued)
            self._queued.clear()
            self._size = 0
            if chunk:
                self._reader.received(chunk)
            if self._ended:
                self._reader.read_ended(None)
        if self._ended:
            self._writer.write_ended(None)
        elif self._writer.congested and not self._queued:
            self._writer.resume_writing()
