"""Running `fairlead` as people do: as a process, with pipes or a terminal around it."""

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

LIMIT = 30.0  # seconds for anything that is waited for

DEMO = ("--", sys.executable, "-m", "fairlead.demo")


def fairlead(
    *args: str,
    input: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with pipes around it.

    It is a fork of a process that has imported `fairlead` already, unless the environment says
    something to the interpreter.
    """
    if not any(name.startswith("PYTHON") for name in env or ()):
        return command_server().run(
            args, input=input, cwd=cwd, env=_environment(env), timeout=LIMIT
        )
    return subprocess.run(
        [sys.executable, "-m", "fairlead", *args],
        input=input,
        cwd=cwd,
        env=_environment(env),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=LIMIT,
        check=False,
    )


def on_terminal(*args: str, env: Mapping[str, str] | None = None) -> str:
    """What a command shows to somebody at a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=_environment({"TERM": "xterm-256color", "COLUMNS": "100", **(env or {})}),
    )
    os.close(theirs)
    shown = b""
    try:
        while select.select([ours], [], [], LIMIT)[0]:
            shown += os.read(ours, 65536)
    except OSError:
        pass  # Linux says so when the last writer has gone
    finally:
        os.close(ours)
        process.wait(LIMIT)
    return shown.decode()


def server_file(folder: Path, *parts: str, name: str = "server.py") -> Path:
    """A server in a file; its parts register what it offers on `server`."""
    file = folder / name
    head = "import asyncio, os, sys\nfrom fairlead import *\nserver = MCPServer('test')\n"
    foot = "\nif __name__ == '__main__':\n    server.run()\n"
    file.write_text(head + "\n".join(map(textwrap.dedent, parts)) + foot)
    return file


def run_by(file: Path) -> tuple[str, ...]:
    return ("--", sys.executable, str(file))


def talk(*messages: Mapping[str, Any]) -> str:
    """What a client of the handshake era says: it opens, then these."""
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
    """A named pipe by which a process tells us its id, which is also how we know it is there.

    `told` is the code with which it does.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.told = f"open({str(path)!r}, 'w').write(str(os.getpid()))"
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read(self) -> int:
        assert select.select([self._fd], [], [], LIMIT)[0], "the process did not say anything"
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
    """Press Ctrl-C once the server has said its id; it must be gone afterwards.

    Returns the exit code and what was written to stderr.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(None),
        text=True,
        # A shell that runs the tests in the background makes them ignore Ctrl-C.
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


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    ignored = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    return {k: v for k, v in os.environ.items() if k not in ignored} | dict(extra or {})
