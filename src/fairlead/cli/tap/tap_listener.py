"""The listener process of a tap: writes messages to a journal, a tape, and `fairlead watch`."""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from typing import Any, NamedTuple

import msgspec

from ...errors import FairleadError
from ...observe.timestamps import Timestamp
from ...protocol.envelope import Direction
from ...recording.journal import Journal, LineObserver
from ...recording.tape.known_secrets import secrets_in
from ...recording.tape.writer import TapeWriter
from ...redaction.redact_messages import Redactor
from ...wire import LineSplitter, TooLong, to_json
from ..framework.command_errors import print_message
from ..recording.places import new_tape_path
from .tap_feed import HEAD
from .watched_relay import watchable

__all__ = ["TapListener", "main"]

PAUSE = 0.01  # seconds
MUCH = 1 << 20  # bytes
_each = msgspec.json.Decoder(list[msgspec.Raw]).decode
_WAYS = {b"u": Direction.CLIENT_TO_SERVER, b"d": Direction.SERVER_TO_CLIENT}


def main() -> None:
    """Listen until the tap exits for any reason."""
    # The listener ends when its pipe closes: a signal to the process group must not end the tape.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(5)
    asyncio.run(_main())


async def _main() -> None:
    frames = _Frames(sys.stdin.fileno())
    first = await frames.next()
    if first is not None:
        about = msgspec.json.decode(first.chunk, type=_About)
        await TapListener(about, first.when).run(frames)


class _About(msgspec.Struct):
    """The name, command and options of a tap, which the tap sends as its first frame."""

    name: str
    pid: int
    command: list[str]
    tape: str | None
    record: bool
    hangs_after: float


class TapListener:
    """Processes the bytes of both directions and records the messages."""

    def __init__(self, about: _About, began: Timestamp) -> None:
        self._about = about
        self._began = self._now = began  # `_now`: time at which the current chunk arrived
        self._redactor = Redactor(values=secrets_in(about.command, os.environ))
        self._command = self._redactor.text(shlex.join(about.command))
        self._journal = Journal(hangs_after=about.hangs_after, redactor=self._redactor)
        self._overheard = LineObserver(self._journal)
        self._ears = {direction: LineSplitter() for direction in _WAYS.values()}
        self._torn: set[Direction] = set()  # directions in which bytes were dropped
        self._tape = self._open_tape() if about.record else None

    async def run(self, frames: "_Frames") -> None:
        """Process frames until the pipe closes."""
        about = self._about
        try:
            async with watchable(self._journal, about.name, "tap", self._command, pid=about.pid):
                while (frame := await frames.next()) is not None:
                    self._take(frame)
                self._finish()
        finally:
            if self._tape is not None:
                self._tape.close()
                if lost := self._tape.info.lost:
                    print_message(
                        "warning", f"{lost} of {self._tape.info.entries} messages were not recorded"
                    )

    def _take(self, frame: "_Frame") -> None:
        direction, chunk = _WAYS[frame.way.lower()], frame.chunk
        self._now = self._overheard.when = frame.when
        if frame.way.isupper():
            self._torn.add(direction)
            return
        # After a gap, bytes up to the next line break belong to an incomplete message.
        if direction in self._torn:
            found, chunk = chunk.partition(b"\n")[1:]
            self._ears[direction] = LineSplitter()
            if found:
                self._torn.discard(direction)
        for line in self._ears[direction].feed(chunk):
            self._line(direction, line)

    def _finish(self) -> None:
        for direction, ear in self._ears.items():
            for line in ear.finish():
                self._line(direction, line)
        # No frame contains the time of the end, so the current time is used.
        self._overheard.when = None
        self._overheard.ended()

    def _line(self, direction: Direction, line: bytes | TooLong) -> None:
        if isinstance(line, TooLong):
            self._overheard.too_long(line.size, direction)
            self._write(to_json({"stray": f"a line of {line.size} bytes"}), direction, "too long")
        elif self._overheard.receive_bytes(line, direction):
            if line[:1] != b"[":
                self._write(line, direction)
                return
            for one in _each(line):  # a batch (2025-03-26): one entry per message
                self._write(bytes(one), direction, "in a batch")
        else:
            text = self._redactor.text(line.decode("utf-8", "replace"))
            self._write(to_json({"stray": text}), direction, "not a message")

    def _write(self, line: bytes, direction: Direction, did: str | None = None) -> None:
        if self._tape is not None:
            words = None if did is None else [did]
            self._tape.write(line, direction, session="s1", did=words, when=self._now)

    def _open_tape(self) -> TapeWriter | None:
        try:
            place = self._about.tape or new_tape_path(self._about.name, self._about.pid)
            about: dict[str, Any] = {"command": self._command}
            return TapeWriter(place, redactor=self._redactor, about=about, began=self._began)
        except (OSError, FairleadError) as exc:
            print_message("warning", f"cannot record: {exc}")
            return None


class _Frame(NamedTuple):
    """A chunk with its direction and time."""

    way: bytes
    chunk: bytes
    when: Timestamp


class _Frames:
    """Reads frames from the tap."""

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self._held = bytearray()
        self._ended = False

    async def next(self) -> _Frame | None:
        """Return the next frame, even if it is incomplete at the end;
        None if the pipe has ended.
        """
        await self._until(HEAD.size)
        if len(self._held) < HEAD.size:
            return None
        way, size, steady, wall = HEAD.unpack_from(self._held)
        end = HEAD.size + size
        await self._until(end)
        chunk = bytes(self._held[HEAD.size : end])
        del self._held[:end]
        return _Frame(way, chunk, Timestamp(steady, wall))

    async def _until(self, size: int) -> None:
        """Wait until enough bytes have arrived or the pipe ends."""
        while len(self._held) < size and not self._ended:
            try:
                some = os.read(self._pipe, MUCH)
            except BlockingIOError:
                await self._readable()
                # Reading is delayed, because it would take processor time away from the peers.
                await asyncio.sleep(PAUSE)
                continue
            self._held += some
            self._ended = not some

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        news = asyncio.Event()
        loop.add_reader(self._pipe, news.set)
        try:
            await news.wait()
        finally:
            loop.remove_reader(self._pipe)
