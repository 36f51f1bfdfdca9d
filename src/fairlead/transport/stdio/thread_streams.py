"""Byte streams that an event loop cannot watch: regular files, terminals, `/dev/null`.

uvloop aborts the process when it gets one of these, asyncio raises or stops reading, and a terminal
that was set to non-blocking stays so after the process has exited. One daemon thread per direction
reads or writes with blocking calls on a duplicate of the descriptor: a thread may be blocked in a
call while the original is closed, and its number may then belong to another file.
"""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable

from ..line_channel import HIGH_WATER, LineChannel

__all__ = ["ThreadSink", "ThreadSource"]

_CHUNK = 64 * 1024  # maximum number of bytes per read


class _ThreadEnd:
    """Base class of source and sink, which calls functions on the event loop from the thread."""

    def __init__(self, channel: LineChannel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()

    def _call(self, function: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *args)


class ThreadSource(_ThreadEnd):
    """Source that reads a descriptor in a daemon thread, at most four chunks ahead of the loop."""

    def __init__(self, fd: int, channel: LineChannel) -> None:
        super().__init__(channel)
        self._may_read = threading.Event()
        self._ahead = threading.Semaphore(4)
        self._closed = False
        _start(self._read, fd, "fairlead-stdin")

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def close(self) -> None:
        """Stop reading. A thread that is blocked in a read ends with the process."""
        self._closed = True
        self._may_read.set()
        # Without this the thread would wait forever if it is four chunks ahead.
        self._ahead.release()

    def _read(self, fd: int) -> None:
        while True:
            self._may_read.wait()
            self._ahead.acquire()
            if self._closed:
                return
            try:
                data = os.read(fd, _CHUNK)
            except OSError as exc:
                self._call(self._channel.read_ended, exc)
                return
            if not data:
                self._call(self._channel.read_ended, None)
                return
            self._call(self._hand_over, data)

    def _hand_over(self, data: bytes) -> None:
        self._ahead.release()
        if not self._closed:
            self._channel.received(data)


class ThreadSink(_ThreadEnd):
    """Sink that writes to a descriptor in a daemon thread, in order."""

    def __init__(self, fd: int, channel: LineChannel) -> None:
        super().__init__(channel)
        self._queue: deque[bytes | None] = deque()
        self._ready = threading.Semaphore(0)
        self._size = 0  # accessed on the loop's thread only
        _start(self._write, fd, "fairlead-stdout")

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > HIGH_WATER and not self._channel.congested:
            self._channel.pause_writing()
        self._queue.append(data)
        self._ready.release()

    def get_write_buffer_size(self) -> int:
        return self._size

    def close(self) -> None:
        self._queue.append(None)
        self._ready.release()

    def abort(self) -> None:
        self._queue.clear()
        self.close()

    def _write(self, fd: int) -> None:
        while True:
            self._ready.acquire()
            try:
                data = self._queue.popleft()
            except IndexError:
                continue  # the queue was cleared by `abort`
            if data is None:
                self._call(self._channel.write_ended, None)
                return
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
            except OSError as exc:
                self._call(self._channel.write_ended, exc)
                return
            self._call(self._written, len(data))

    def _written(self, size: int) -> None:
        self._size -= size
        # Well below the mark at which senders pause, so that they do not pause again at once.
        if self._channel.congested and self._size <= HIGH_WATER // 4:
            self._channel.resume_writing()


def _start(work: Callable[[int], None], fd: int, name: str) -> None:
    # The thread owns a duplicate, because the caller may close its descriptor at any time.
    own = os.dup(fd)

    def run() -> None:
        try:
            work(own)
        finally:
            os.close(own)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        os.close(own)
        raise
