"""Servers that log every message they receive, and the test's access to that log."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.observed_stdio_server import LISTS

__all__ = ["LIMIT", "LIST_METHODS", "Received", "ServerLog"]

LIMIT = 10.0  # time limit of a test in seconds; most tests take one or two seconds
LIST_METHODS = tuple(LISTS)
QUIET = 0.3  # servers count as idle after this many seconds without a new log line


class Received(NamedTuple):
    """A message that a server received."""

    at: float  # time of `time.monotonic`
    server: str
    pid: int
    message: dict[str, Any]

    @property
    def params(self) -> dict[str, Any]:
        return self.message.get("params", {})  # type: ignore[no-any-return]


class ServerLog:
    """The log that all servers of a test share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "received.jsonl"
        self.path.touch()

    # Servers

    def entry(self, name: str, **options: Any) -> dict[str, Any]:
        """Return the entry of a server without any library, which starts in 30 ms.

        Options:
            eras: ["handshake"] (default), ["stateless"] or both.
            settles_on: The revision that the server negotiates.
            varying: Tools that are listed only for clients with a capability, by capability.
            tools: Names of tools.
            lock, port: A path and a port that only one process can own at a time.
            asks_roots: Request roots after the handshake.
            gate: A path that must exist before the server answers.
            crash: Exit at the start.
            silent, exits_on: Methods that are not answered, or at which the server exits.
            exits_while, silent_while: Apply `exits_on` or `silent` only while this path exists.
            refuses_all: Refuse everything except `initialize`.
            fault_era: Apply `exits_on`, `silent` and `refuses_all` only to messages of this era.
            requires, exits_for: A capability without which, or with which, the server exits.
            changing_lists: Return another tool in each list.
            announces: Announce list changes continuously.
        """
        program = str(Path(__file__).with_name("observed_stdio_server.py"))
        args = ["-I", "-S", program, str(self.path), name, json.dumps(options)]
        return {"command": sys.executable, "args": args}

    def two_eras(self, name: str) -> dict[str, Any]:
        """Return the entry of a server of both eras, made with `MCPServer`."""
        program = str(Path(__file__).with_name("observed_two_era_server.py"))
        return {"command": sys.executable, "args": [program, str(self.path), name]}

    # Log

    def _lines(self, event: str, server: str | None) -> list[dict[str, Any]]:
        lines = map(json.loads, self.path.read_text().splitlines())
        return [x for x in lines if x["event"] == event and server in (None, x["server"])]

    def started(self, server: str | None = None) -> list[int]:
        """Return the processes that were started, in order."""
        return [line["pid"] for line in self._lines("start", server)]

    def start_times(self, server: str | None = None) -> list[float]:
        return [line["at"] for line in self._lines("start", server)]

    def running(self, server: str | None = None) -> list[int]:
        """Return the processes that have not ended."""
        return [pid for pid in self.started(server) if _runs(pid)]

    def peak(self) -> int:
        """Return the maximum number of processes that ran concurrently."""
        running = most = 0
        ended: set[int] = set()
        for line in map(json.loads, self.path.read_text().splitlines()):
            if line["event"] == "start":
                running += 1
            elif line["event"] == "end" and line["pid"] not in ended:
                ended.add(line["pid"])
                running -= 1
            most = max(most, running)
        return most

    def received(
        self, method: str | None = None, *, server: str | None = None, pid: int | None = None
    ) -> list[Received]:
        """Return the messages that servers received, in order."""
        return [
            Received(line["at"], line["server"], line["pid"], line["message"])
            for line in self._lines("received", server)
            if method in (None, line["message"].get("method")) and pid in (None, line["pid"])
        ]

    def counts(self, server: str, methods: tuple[str, ...] = LIST_METHODS) -> dict[str, int]:
        """Return how often a server received each of these requests."""
        return {method: len(self.received(method, server=server)) for method in methods}

    def is_handshake(self, pid: int) -> bool:
        """Return True if a process received `initialize`."""
        return bool(self.received("initialize", pid=pid))

    async def quiet(self) -> None:
        """Wait until no server has received a message for a moment."""
        async with asyncio.timeout(LIMIT):
            size = -1
            while size != (now := self.path.stat().st_size):
                size = now
                await asyncio.sleep(QUIET)


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z" and os.getpid() != pid
