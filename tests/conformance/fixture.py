"""Processes of the conformance server and of a relay in front of it."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

SERVER = Path(__file__).with_name("server.py")
OFFICIAL = Path(__file__).with_name("official.py")
RELAY = Path(__file__).with_name("relay.py")
PATIENCE = 20.0  # timeout in seconds for start-up and shutdown


class NotStarted(Exception):
    """A program did not start listening in time; the message is its output."""


def serving(*arguments: str) -> contextlib.AbstractContextManager[str]:
    """Run the conformance server, and yield its URL."""
    return started(SERVER, *arguments)


def relaying(*arguments: str) -> contextlib.AbstractContextManager[str]:
    """Run a relay for a URL or a command, and yield its URL."""
    return started(RELAY, *arguments)


@contextlib.contextmanager
def started(program: Path, *arguments: str) -> Iterator[str]:
    """Start a program that listens on a free port, and yield the URL that it prints.

    Raises:
        NotStarted: The program ended or did not print a URL in time.
    """
    command = [sys.executable, str(program), *arguments]
    with (
        TemporaryFile() as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said) as process,
    ):
        try:
            yield _url(process, said)
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


def _url(process: subprocess.Popen[bytes], said: IO[bytes]) -> str:
    assert process.stdout is not None
    limit = threading.Timer(PATIENCE, process.kill)
    limit.start()
    try:
        url = process.stdout.readline().decode().strip()
    finally:
        limit.cancel()
    if not url:
        process.wait()
        said.seek(0)
        raise NotStarted(said.read().decode()[-2000:])
    return url
