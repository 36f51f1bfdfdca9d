"""Process under test: pipes, stderr and reliable termination."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Self

from .envs import ROOT

__all__ = ["Child", "Failed", "deadline"]

_CHUNK = 1 << 15  # larger ones are a memory map each, which takes longer than the call


class Failed(Exception):
    """A runtime exited, did not respond, or gave a wrong response."""


class Child:
    """A process with raw pipes for lines, or without pipes."""

    def __init__(self, command: Sequence[str], *, mute: bool = False) -> None:
        """Start the process; a mute one has no pipes and is reached in another way."""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        pipe = subprocess.DEVNULL if mute else subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._stderr, bufsize=0, cwd=ROOT
        )
        self.pid = self._process.pid
        self._pipes = [p for p in (self._process.stdin, self._process.stdout) if p is not None]
        self.writer, self.reader = (-1, -1) if mute else (p.fileno() for p in self._pipes)

    @property
    def running(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    @property
    def resident(self) -> int:
        """The resident set in bytes.

        Raises:
            Failed: The system does not provide it.
        """
        return _status(self.pid, "VmRSS:") * 1024

    @property
    def cpu(self) -> float:
        """The CPU seconds of all threads; 0 if the system does not provide them."""
        try:
            tasks = Path(f"/proc/{self.pid}/task").iterdir()
            return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
        except OSError:
            return 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def say(self, line: bytes) -> None:
        """Write one complete line.

        Raises:
            Failed: The process has exited.
        """
        try:
            os.write(self.writer, line)
        except BrokenPipeError:
            raise Failed(self.complaint()) from None

    def hear(self) -> bytes:
        """Read the next line, if no other follows before the next write.

        Raises:
            Failed: The process exits instead.
        """
        line = b""
        while not line.endswith(b"\n"):
            chunk = os.read(self.reader, _CHUNK)
            if not chunk:
                raise Failed(self.complaint())
            line += chunk
        return line

    def complaint(self) -> str:
        """Return the end of stderr, without paths of this machine."""
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            pass  # the process closed stdout but still runs
        self._stderr.seek(0)
        text = self._stderr.read().decode(errors="replace").replace(f"{ROOT}/", "").strip()
        return text[-2000:] or f"ended with status {self._process.returncode}, nothing on stderr"

    def close(self) -> None:
        """Close stdin, and kill the process if it does not exit."""
        process = self._process
        if process.stdin is None:
            process.terminate()
        else:
            process.stdin.close()
        for force in (process.terminate, process.kill):
            try:
                process.wait(2)
                break
            except subprocess.TimeoutExpired:
                force()
        process.wait()
        for pipe in self._pipes:
            pipe.close()
        self._stderr.close()


@contextmanager
def deadline(seconds: int) -> Iterator[None]:
    """Fail reads that are still blocked after `seconds`, at no cost per call."""

    def expire(_signal: int, _frame: FrameType | None) -> None:
        raise Failed(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _status(pid: int, field: str) -> int:
    try:
        with open(f"/proc/{pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(field))
    except (OSError, StopIteration):
        raise Failed(f"no {field} in /proc; this figure needs Linux") from None
