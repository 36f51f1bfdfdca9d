"""Starting the conformance server as a process."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

SERVER = Path(__file__).with_name("server.py")
PATIENCE = 20.0  # seconds until it listens, and until it has ended


class NotStarted(Exception):
    """The server ended before it listened, or took too long; the text is what it said."""


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """Serve on a free port and yield the URL.

    Raises:
        NotStarted: if that does not come about.
    """
    command = [sys.executable, str(SERVER), "--port", "0", *arguments]
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
