"""`fairlead` run as a process, with pipes or a terminal as its standard streams."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.command_server import command_server

LIMIT = 30.0  # time limit of each wait, in seconds

DEMO = ("--", sys.executable, "-m", "fairlead.demo")


def fairlead(
    *args: str,
    input: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with pipes as its standard streams.

    The process is a fork of one that has already imported `fairlead`, unless `env` has variables
    that configure the interpreter.
    """
    if not any(name.startswith("PYTHON") for name in env or ()):
        return command_server().run(
            args, input=input, cwd=cwd, env=process_environment(env), timeout=LIMIT
        )
    return subprocess.run(
        [sys.executable, "-m", "fairlead", *args],
        input=input,
        cwd=cwd,
        env=process_environment(env),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=LIMIT,
        check=False,
    )


def on_terminal(*args: str, env: Mapping[str, str] | None = None) -> str:
    """Return the output of a command at a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=process_environment({"TERM": "xterm-256color", "COLUMNS": "100", **(env or {})}),
    )
    os.close(theirs)
    shown = b""
    try:
        while select.select([ours], [], [], LIMIT)[0]:
            shown += os.read(ours, 65536)
    except OSError:
        pass  # Linux raises EIO when the last writer has closed the terminal
    finally:
        os.close(ours)
        process.wait(LIMIT)
    return shown.decode()


def server_file(folder: Path, *parts: str, name: str = "server.py") -> Path:
    """Write a server to a file; `parts` is code that registers tools and resources on `server`."""
    file = folder / name
    head = "import asyncio, os, sys\nfrom fairlead import *\nserver = MCPServer('test')\n"
    foot = "\nif __name__ == '__main__':\n    server.run()\n"
    file.write_text(head + "\n".join(map(textwrap.dedent, parts)) + foot)
    return file


def run_by(file: Path) -> tuple[str, ...]:
    return ("--", sys.executable, str(file))


def talk(*messages: Mapping[str, Any]) -> str:
    """Return the lines that a handshake-era client sends: its handshake, then `messages`."""
    opening: list[Mapping[str, Any]] = [
        {
            "id": 0,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
    ]
    return "".join(json.dumps({"jsonrpc": "2.0", **m}) + "\n" for m in [*opening, *messages])


class Signpost:
    """A named pipe through which a running process reports its id.

    `report` is the code with which the process writes its id.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.report = f"open({str(path)!r}, 'w').write(str(os.getpid()))"
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read(self) -> int:
        assert select.select([self._fd], [], [], LIMIT)[0], "the process did not report its id"
        return int(os.read(self._fd, 100))

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def signpost(path: Path) -> Iterator[Signpost]:
    post = Signpost(path)
    try:
        yield post
    finally:
        post.close()


def interrupt(post: Signpost, *args: str) -> tuple[int, str]:
    """Send SIGINT once the server has reported its id, and check that the server ends.

    Return the exit code and the text that was written to stderr.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=process_environment(),
        text=True,
        # A shell that runs the tests in the background makes them ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads
    )
    server = os.pidfd_open(post.read())
    try:
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=LIMIT)
        assert select.select([server], [], [], 5)[0], "the server is still running"
    finally:
        os.close(server)
        process.kill()
    return process.returncode, stderr


def process_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a command: `fairlead` is on the PATH, colours are unset."""
    ignored = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    kept = {k: v for k, v in os.environ.items() if k not in ignored}
    # As in an active virtual environment, so that hints show the program by its name.
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, "PATH": path, **(extra or {})}
