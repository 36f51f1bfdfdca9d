"""Measurements of relays; `cases.py` selects them.

All relays have the same server and the same load generator. With one call at a time, all processes
share one CPU.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec

from .calls import Echo, Work
from .child import Child, Failed
from .cpu import one_cpu
from .envs import BENCH
from .load import Burst, Session
from .measures import Effort, play, pool_key
from .pool import Pool
from .relay_peers import COPY, filled
from .requests import Era
from .rounds import Row, take_turns
from .runtimes import (
    BARE_HTTP,
    INSTANT,
    Command,
    Route,
    Runtime,
    builds_of,
    comparing_commits,
    tuned,
)
from .web import WebServer

__all__ = ["COPYING", "SAME_ERA", "Blob", "Bridging", "Churning", "Relaying", "Waiting"]

SAME_ERA = "same era"  # ourselves, where client and server speak the same
COPYING = "copying"
_BLOB: Command = (sys.executable, str(BENCH / "servers" / "blob.py"))
_SHORT = Echo()
_SETTLING = 24_000  # sessions opened and ended first, so that what is needed only once is there

Player = tuple[Runtime, Command]


@dataclass(frozen=True)
class Blob:
    """Calls whose results are a mebibyte."""

    size = 1 << 20
    most = 100

    def lines(self, era: Era, first: int, count: int) -> list[bytes]:
        line = (
            b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":'
            b'{"name":"blob","arguments":{"number":%d}}}\n'
        )
        return [line % (n, n) for n in range(first, first + count)]

    def check(self, answers: Iterable[bytes], first: int, count: int) -> None:
        found = {}
        for line in answers:
            answer = msgspec.json.decode(line)
            [block] = answer["result"]["content"]
            found[answer["id"]] = (block["text"][:10], len(block["text"]))
        if found != {n: (f"{n:010d}", self.size) for n in range(first, first + count)}:
            raise Failed(f"wrong answers to {first} to {first + count - 1}")


@dataclass(frozen=True, kw_only=True)
class Relaying:
    """Calls per second through each relay."""

    route: Route
    work: Work = _SHORT
    window: int = 1
    era: Era = Era.HANDSHAKE  # of the client; a peer that has only sessions keeps to them
    one_cpu: bool = False
    tuned: bool = False  # with settings that make a relay faster

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        seen: dict[str, list[Burst]] = {}

        def burst(server: Session | WebServer, name: str, calls: int) -> float:
            done = server.burst(self.work, calls, window=self.window)
            seen.setdefault(name, []).append(done)
            return done.rate

        def join(runtime: Runtime, command: Command, key: Hashable) -> Callable[[int], float]:
            era = self.era if runtime.build else Era.HANDSHAKE
            server: Session | WebServer
            if self.route.startswith("http"):
                server = pool.get(key, partial(WebServer, command, era=era))
            else:
                server = pool.get(key, partial(Session, command, era=era))
            return partial(burst, server, runtime.name)

        row.pinned = self.one_cpu
        with one_cpu(self.one_cpu), ExitStack() as stack:
            players = self.players(tuned(runtimes) if self.tuned else runtimes, stack)
            key = ("relay", self.era, self.one_cpu)
            calls = range(2 * self.window, self.work.most)
            play(row, players, effort, pool, join, key, calls, compared=self.work)
            for runtime, command in players:
                # Otherwise their servers would be used in other rows.
                pool.drop(pool_key(key, runtime, command))
        for name, done in seen.items():
            measured = done[-len(row.samples.get(name, done)) :]  # without the warm-up
            row.notes[name] = {
                "answer_bytes": done[-1].answer_size,
                "generator_busy": round(median(b.busy / b.seconds for b in measured), 2),
            }
            if spent := sum(b.served for b in measured):
                row.notes[name]["server_cpu_us"] = round(
                    spent / sum(b.calls for b in measured) * 1e6, 1
                )

    def players(self, runtimes: Sequence[Runtime], stack: ExitStack) -> list[Player]:
        """Return the relays; a server that all of them call runs as long as the row."""
        url = ""
        if self.route.endswith("http"):
            url = stack.enter_context(WebServer(BARE_HTTP)).url
        playing = [
            (runtime, filled(runtime.relays[self.route], server=self.server, url=url))
            for runtime in runtimes
            if self.route in runtime.relays
        ]
        if isinstance(self.work, Blob) and not comparing_commits(runtimes):
            playing.append((Runtime(name=COPYING, version=""), filled(COPY, server=self.server)))
        return playing

    @property
    def server(self) -> Command:
        return _BLOB if isinstance(self.work, Blob) else INSTANT


@dataclass(frozen=True, kw_only=True)
class Bridging(Relaying):
    """Fairlead between a stateless client and a handshake server, or two stateless peers."""

    route: Literal["stdio-stdio"] = "stdio-stdio"
    era: Era = Era.STATELESS

    def players(self, runtimes: Sequence[Runtime], stack: ExitStack) -> list[Player]:
        builds = builds_of(runtimes)
        playing = [(build, _with_era(build, "handshake")) for build in builds]
        if not comparing_commits(runtimes):
            playing.append((replace(builds[0], name=SAME_ERA), _with_era(builds[0], "auto")))
        return playing


@dataclass(frozen=True, kw_only=True)
class Churning:
    """Bytes that the relay keeps for each ended session."""

    cycles: int = 20_000

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        cycles = self.cycles if effort.full else self.cycles // 10
        settling = _SETTLING if effort.full else _SETTLING // 10

        def measure(build: Runtime) -> float:
            with _gateway(build) as server, server.connect() as line:

                def cycle(times: int) -> int:
                    for _ in range(times):
                        server.end_session(line, server.open_session(line))
                    return server.resident

                before = cycle(settling)
                return max(0, cycle(cycles) - before) / cycles

        take_turns(row, {one.name: partial(measure, one) for one in builds_of(runtimes)}, 1)


class Waiting:
    """The share of a CPU that the relay uses for an idle session."""

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        def measure(build: Runtime) -> float:
            with _gateway(build) as server:
                server.burst(_SHORT, 100, window=4)
                time.sleep(2.0)  # connections that are idle by now have been closed
                before = _run_time(server.child)
                time.sleep(effort.idle / 2)
                return (_run_time(server.child) - before) / (effort.idle / 2) * 100

        take_turns(row, {one.name: partial(measure, one) for one in builds_of(runtimes)}, 1)


def _with_era(build: Runtime, era: str) -> Command:
    command = build.relays["stdio-stdio"]
    end = command.index("--")
    return filled((*command[:end], "--era", era, *command[end:]), server=INSTANT)


def _gateway(build: Runtime) -> WebServer:
    command = build.relays["http-stdio"]
    return WebServer(filled(command, server=INSTANT), era=Era.HANDSHAKE)


def _run_time(child: Child) -> float:
    """Return the CPU seconds of a process, all threads, in microsecond resolution."""
    try:
        tasks = Path(f"/proc/{child.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except OSError:
        raise Failed("no schedstat in /proc; this figure needs Linux") from None
