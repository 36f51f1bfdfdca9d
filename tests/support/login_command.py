"""`fairlead` as a process with its own home folder, and a user who logs in."""

import asyncio
import os
import pty
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp

from tests.support.oidc_provider import confirm_code, visit

__all__ = [
    "Fairlead",
    "TerminalCommand",
    "complete",
    "ended",
    "fetch",
    "log_in",
    "log_in_with_code",
    "login_page",
]


class Fairlead:
    """The `fairlead` command with its own home folder."""

    def __init__(self, home: Path, **env: str) -> None:
        self._env = {**os.environ, **env, "FAIRLEAD_HOME": str(home), "BROWSER": "false"}
        self._env.pop("DISPLAY", None)

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await self.python("-m", "fairlead", *arguments)

    async def python(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start another program of the same user."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, *arguments),
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def at_terminal(self, *arguments: str) -> "TerminalCommand":
        """Start a command whose user can type."""
        ours, theirs = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fairlead", *arguments),
            env={**self._env, "NO_COLOR": "1"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        return TerminalCommand(process, ours)

    async def __call__(self, *arguments: str) -> tuple[int, str, str]:
        process = await self.start(*arguments)
        with killed_on_error(process):
            out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()


class TerminalCommand:
    """A command at a terminal."""

    def __init__(self, process: asyncio.subprocess.Process, terminal: int) -> None:
        self._process = process
        self._terminal = terminal
        self._text = ""

    async def shown(self, pattern: str) -> str:
        """Return the first match in the text that the command shows, and forget the text."""
        while (found := re.search(pattern, self._text, re.M)) is None:
            self._text += await self._read()
        self._text = self._text[found.end() :]
        return found[1] if found.groups() else found[0]

    async def _read(self) -> str:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._terminal, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._terminal)
        return os.read(self._terminal, 65536).decode().replace("\r", "")

    def enter(self, line: str) -> None:
        os.write(self._terminal, f"{line}\n".encode())

    async def ended(self) -> int:
        code = await self._process.wait()
        os.close(self._terminal)
        return code


async def log_in(fairlead: Fairlead, *arguments: str, command: str = "login") -> tuple[int, str]:
    """Run `fairlead login` or an equal command, and visit the page that it prints."""
    process = await fairlead.start(*command.split(), *arguments)
    with killed_on_error(process):
        await complete(await login_page(process))
        return await ended(process)


async def login_page(process: asyncio.subprocess.Process) -> str:
    """Return the login page that a command shows."""
    return await _shown(process, r"^  (http\S+authorize\S*|http\S+/auth\?\S+)$")


async def complete(page: str) -> None:
    """Log in as alice at a login page."""
    [redirect_uri] = parse_qs(urlsplit(page).query)["redirect_uri"]
    await fetch(await visit(page, redirect_uri, "alice"))


async def log_in_with_code(fairlead: Fairlead, *arguments: str) -> tuple[int, str]:
    """Run `fairlead login --device` and confirm the code that it prints."""
    process = await fairlead.start("login", "--device", *arguments)
    with killed_on_error(process):
        await confirm_code(await _shown(process, r"^or open (http\S+)$"))
        return await ended(process)


@contextmanager
def killed_on_error(process: asyncio.subprocess.Process) -> Iterator[None]:
    """Kill a command if the test fails or ends first; the event loop waits for it otherwise."""
    try:
        yield
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        raise


async def _shown(process: asyncio.subprocess.Process, pattern: str) -> str:
    """Return the first match in the lines that a command shows."""
    assert process.stderr is not None
    shown = ""
    while (found := re.search(pattern, shown, re.M)) is None:
        line = await process.stderr.readline()
        assert line, shown
        shown += line.decode()
    return found[1]


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str]:
    """Return the exit code and the remaining output of a command."""
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def fetch(url: str) -> None:
    async with aiohttp.ClientSession() as http, http.get(url) as reply:
        assert reply.status == 200
