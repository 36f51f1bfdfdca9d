"""How far a long tape has been read, for somebody who waits at a terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..gateway.tape import TapeReader
from .output import size

__all__ = ["progress"]

QUIET: Final = 1.0  # seconds in which nobody wonders
AGAIN: Final = 0.2
CLEAR: Final = "\r\x1b[K"


@contextmanager
def progress(*readers: TapeReader, what: str = "reading") -> Iterator[None]:
    """Show it while these are read; nowhere but on a terminal, and on no line of its own."""
    if not sys.stderr.isatty():
        yield
        return
    shown = _Shown(sum(reader.size for reader in readers), what)
    for reader in readers:
        reader.on_read = shown.add
    try:
        yield
    finally:
        for reader in readers:
            reader.on_read = None
        shown.clear()


class _Shown:
    def __init__(self, total: int, what: str) -> None:
        self._total = max(total, 1)
        self._what = what
        self._done = 0
        self._next = time.monotonic() + QUIET
        self._dirty = False

    def add(self, count: int) -> None:
        self._done += count
        if self._done >= self._total:  # what comes now has the line for itself
            self.clear()
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + AGAIN
        self._dirty = True
        text = f"{self._what}: {self._done * 100 // self._total}% of {size(self._total)}"
        sys.stderr.write(f"{CLEAR}{text}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._dirty:
            self._dirty = False
            sys.stderr.write(CLEAR)
            sys.stderr.flush()
