"""A process under test: its pipes, what it wrote to stderr, and a sure end."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Self

from .envs import ROOT

__all__ = ["Child", "Failed", "deadline"]

_CHUNK = 1 << 18


class Failed(Exception):
    """A runtime did not do its part: died, was silent, or answered wrongly."""


class Child:
    """A process spoken to in lines over raw pipes."""

    def __init__(self, command: Sequence[str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            cwd=ROOT,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self.writer = self._process.stdin.fileno()
        self.reader = self._process.stdout.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def say(self, line: bytes) -> None:
        """Write one line, whole.

        Raises: Failed, when the process is gone.
        """
        try:
            os.write(self.writer, line)
        except BrokenPipeError:
            raise Failed(self.complaint()) from None

    def hear(self) -> bytes:
        """The next line; for exchanges where nothing follows it before we speak again.

        Raises: Failed, when the process ends instead.
        """
        line = b""
        while not line.endswith(b"\n"):
            chunk = os.read(self.reader, _CHUNK)
            if not chunk:
                raise Failed(self.complaint())
            line += chunk
        return line

    def complaint(self) -> str:
        """What the process left on stderr, its end, without this machine's paths."""
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            pass  # it closed stdout and lives on
        self._stderr.seek(0)
        text = self._stderr.read().decode(errors="replace").replace(f"{ROOT}/", "").strip()
        return text[-2000:] or f"ended with status {self._process.returncode}, nothing on stderr"

    def close(self) -> None:
        """End the process: by closing its stdin, and by force when that is not enough."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        for force in (process.terminate, process.kill):
            try:
                process.wait(2)
                break
            except subprocess.TimeoutExpired:
                force()
        process.wait()
        process.stdout.close()
        self._stderr.close()


@contextmanager
def deadline(seconds: int) -> Iterator[None]:
    """Fail what is still blocked in a read after `seconds`; costs nothing per call."""

    def expire(_signal: int, _frame: FrameType | None) -> None:
        raise Failed(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
