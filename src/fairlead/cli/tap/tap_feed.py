"""The pipe from a tap to its listener process;
writing to it never blocks the forwarding threads.
"""

import contextlib
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from typing import Any, Final

from ..framework.command_errors import print_message

__all__ = ["HEAD", "TapFeed"]

# Header of each chunk: direction, length, and the times of `time.monotonic()` and `time.time()`.
# The times are included, because a listener that reads late would otherwise record the delay.
HEAD: Final = struct.Struct(">cIdd")
# Maximum number of bytes queued for the listener; further bytes are dropped.
MAX_WAITING: Final = 64 << 20
PIPE: Final = 1 << 20
FLUSH_LIMIT: Final = 2.0  # seconds to flush the queue when the command ends
# Seconds to wait for the listener to exit; after that it continues in the background.
STOP_LIMIT: Final = 1.0

_MAIN: Final = "from fairlead.cli.tap.tap_listener import main; main()"


class TapFeed:
    """Sender of copies of the forwarded bytes to a listener process, which it starts."""

    def __init__(self, about: dict[str, Any]) -> None:
        theirs, ours = os.pipe()
        with contextlib.suppress(OSError, ImportError, AttributeError):
            import fcntl

            fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, PIPE)
        os.set_blocking(ours, False)
        self.unheard = 0  # number of dropped bytes
        self._pipe: int | None = ours
        self._waiting: deque[bytes | memoryview] = deque()
        self._size = 0
        self._torn: set[bytes] = set()
        self._guard = threading.Lock()
        self._flushed = threading.Event()
        self._flushing = self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        try:
            # `-P` prevents modules in the current folder from replacing Fairlead's modules.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _MAIN],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                # A signal to the tap does not end the listener, so that it can finish the tape.
                start_new_session=True,
            )
        except OSError as exc:
            print_message("warning", f"cannot start the listener: {exc}")
            self._close()
        finally:
            os.close(theirs)
        self._send(b"i", json.dumps(about).encode())

    def receive_bytes(self, way: bytes, chunk: bytes) -> None:
        with self._guard:  # Timestamps are taken while the lock is held, so that they are in order.
            self._send(way, chunk)

    def stop(self) -> None:
        """Flush the queue for a limited time, and close the pipe."""
        with self._guard:
            self._stopping = True
            flushing = self._flushing
            if not flushing:
                self._close()
        if self._process is None:
            return
        if flushing:
            self._flushed.wait(FLUSH_LIMIT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT)
        # Set, so that the interpreter does not warn about a running child process.
        self._process.returncode = 0
        self.unheard += self._size
        if self.unheard:
            print_message("warning", f"{self.unheard} bytes arrived too fast and were not recorded")

    def _send(self, way: bytes, chunk: bytes) -> None:
        if self._pipe is None:
            return
        if self._size + len(chunk) > MAX_WAITING:
            self.unheard += len(chunk)
            self._torn.add(way)
            return
        # Mark the gap, so that the listener does not join the halves of two messages.
        if way in self._torn:
            self._torn.discard(way)
            self._put(_head(way.upper(), 0))
        self._put(_head(way, len(chunk)) + chunk)

    def _put(self, frame: bytes) -> None:
        assert self._pipe is not None
        done = 0
        if not self._waiting:
            try:
                done = os.write(self._pipe, frame)
            except BlockingIOError:
                pass
            except OSError:  # the listener exited; forwarding continues
                self._close()
                return
        if done < len(frame):
            self._waiting.append(memoryview(frame)[done:])
            self._size += len(frame) - done
            if not self._flushing:
                self._flushing = True
                threading.Thread(target=self._flush, daemon=True).start()

    def _flush(self) -> None:
        """Send the queued frames when the pipe becomes writable."""
        while True:
            pipe = self._pipe
            if pipe is None:
                return
            select.select([], [pipe], [])
            with self._guard:
                try:
                    while self._waiting:
                        piece = self._waiting[0]
                        done = os.write(pipe, piece)
                        self._size -= done
                        if done < len(piece):
                            self._waiting[0] = piece[done:]
                        else:
                            self._waiting.popleft()
                except BlockingIOError:
                    continue
                except OSError:
                    self._close()
                    self._flushed.set()
                    return
                self._flushing = False
                if self._stopping:
                    self._close()
                    self._flushed.set()
                return

    def _close(self) -> None:
        if self._pipe is not None:
            pipe, self._pipe = self._pipe, None
            self._waiting.clear()
            self._size = 0
            os.close(pipe)


def _head(way: bytes, size: int) -> bytes:
    return HEAD.pack(way, size, time.monotonic(), time.time())
