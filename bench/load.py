"""Load generators on raw pipes, without an MCP client and without decoding while the clock runs."""

from __future__ import annotations

import gc
import os
import select
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, Self

from .calls import Work
from .child import Child, Failed, deadline
from .equal_answers import sample_line
from .pages import Lists
from .requests import INITIALIZE, INITIALIZED, Era

__all__ = ["Burst", "Session"]

_CHUNK = 1 << 15  # larger ones are a memory map each, which takes longer than the call
_PATIENCE = 30  # seconds for an opening or a burst, before a runtime counts as failed


class Burst(NamedTuple):
    """One short series of calls."""

    calls: int
    seconds: float
    busy: float  # CPU seconds the generator itself used meanwhile
    answer_size: int  # bytes of one answer, all its pages; the mean
    served: float = 0.0  # CPU seconds the server used, where that is known

    @property
    def rate(self) -> float:
        """Calls per second."""
        return self.calls / self.seconds


class Session:
    """A server under test after its opening and its first list, ready for bursts."""

    lists: Lists  # how it is listed in full
    first_list: float  # seconds until it was, the first time

    def __init__(self, command: Sequence[str], era: Era = Era.HANDSHAKE) -> None:
        self._era = era
        self._number = 0
        self._child = Child(command)
        try:
            with deadline(_PATIENCE):
                self._open()
        except BaseException:
            self._child.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._child.close()

    @property
    def resident(self) -> float:
        """The resident set of the server in MB."""
        return self._child.resident / 1e6

    def burst(self, work: Work, calls: int, *, window: int) -> Burst:
        """Make `calls` calls with `window` of them in flight.

        Raises:
            Failed: The server exits, does not respond, or gives a wrong response.
        """
        first = self._number
        lines = work.lines(self._era, first, calls)
        self._number += len(lines)
        gc.collect()
        gc.disable()
        try:
            with deadline(_PATIENCE):
                served, busy, start = self._child.cpu, time.process_time(), time.perf_counter()
                if window == 1:
                    chunks = _one_at_a_time(self._child, lines)
                else:
                    chunks = _in_flight(self._child, lines, window)
                seconds, busy = time.perf_counter() - start, time.process_time() - busy
                served = self._child.cpu - served
        except BrokenPipeError:
            raise Failed(self._child.complaint()) from None
        finally:
            gc.enable()
        received = b"".join(chunks)
        work.check(received.splitlines(), first, calls)
        return Burst(calls, seconds, busy, round(len(received) / calls), served)

    def ask(self, work: Work) -> bytes:
        """Return the response to the call of `work` that is the same for every server.

        Raises:
            Failed: The server exits or does not respond.
        """
        line = sample_line(work, self._era, self._number)
        self._number += 1
        with deadline(_PATIENCE):
            return b"".join(_one_at_a_time(self._child, [line]))

    def _open(self) -> None:
        if self._era is Era.HANDSHAKE:
            self._child.say(INITIALIZE)
            self._expect(self._child.hear(), b'"protocolVersion"')
            self._child.say(INITIALIZED)
        self._number += 1
        start = time.perf_counter()
        self.lists = Lists.learn(self._child, self._era, self._number)
        self.first_list = time.perf_counter() - start
        self._number += self.lists.pages

    def _expect(self, line: bytes, fragment: bytes) -> None:
        if fragment not in line or b'"error":' in line:
            raise Failed(f"does not speak {self._era.value}: {line[:300]!r}")


def _one_at_a_time(child: Child, lines: list[bytes]) -> list[bytes]:
    reader, writer = child.reader, child.writer
    os.set_blocking(reader, True)
    os.set_blocking(writer, True)
    chunks: list[bytes] = []
    for line in lines:
        os.write(writer, line)
        while True:
            chunk = os.read(reader, _CHUNK)
            chunks.append(chunk)
            if chunk.endswith(b"\n"):
                break
            if not chunk:
                raise Failed(child.complaint())
    return chunks


def _in_flight(child: Child, lines: list[bytes], window: int) -> list[bytes]:
    """Keep `window` calls pending: send as many new ones, in one write, as responses arrived."""
    reader, writer = child.reader, child.writer
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    waiting_to_read, waiting_for_either = select.poll(), select.poll()
    waiting_to_read.register(reader, select.POLLIN)
    waiting_for_either.register(reader, select.POLLIN)
    waiting_for_either.register(writer, select.POLLOUT)

    stream = memoryview(b"".join(lines))
    ends = list(accumulate(map(len, lines)))  # where each line ends in the stream
    total, last = len(lines), len(lines) - 1
    chunks: list[bytes] = []
    answered = sent = 0
    allowed = ends[min(window - 1, last)]
    while answered < total:
        if sent < allowed:
            try:
                sent += os.write(writer, stream[sent:allowed])
            except BlockingIOError:
                pass  # the pipe is full, so read first
        (waiting_for_either if sent < allowed else waiting_to_read).poll()
        try:
            chunk = os.read(reader, _CHUNK)
        except BlockingIOError:
            continue
        if not chunk:
            raise Failed(child.complaint())
        chunks.append(chunk)
        answered += chunk.count(b"\n")
        allowed = ends[min(answered + window - 1, last)]
    return chunks
