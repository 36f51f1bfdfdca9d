"""Measurements of HTTP servers; `cases.py` selects them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Literal

from .calls import Echo, Work
from .cpu import one_cpu
from .load import Burst
from .measures import Effort, play
from .pool import Pool
from .requests import Era
from .rounds import OURS, Row, take_turns
from .runtimes import Command, Runtime, comparing_commits, tuned
from .web import WebServer

__all__ = ["TEN", "Answers", "Crowding", "Cycling", "Idling", "Posting"]

Answers = Literal["stateless", "json", "sse"]  # of the stateless era, or how a session's come

TEN = "with ten"  # ourselves, with ten tools instead of a thousand
_SHORT = Echo()
_SETTLING = 200  # sessions opened first, so that what is needed only once is there
_IDLE = 1_000
_CYCLES = 10_000


@dataclass(frozen=True, kw_only=True)
class Posting:
    """Calls per second of each runtime's HTTP server with Fairlead's load generator."""

    work: Work = _SHORT
    window: int = 1
    answers: Answers = "stateless"
    tools: Literal["server", "thousand"] = "server"
    one_cpu: bool = False
    tuned: bool = False  # with settings that make a runtime faster

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        seen: dict[str, list[Burst]] = {}

        def burst(server: WebServer, name: str, calls: int) -> float:
            done = server.burst(self.work, calls, window=self.window)
            seen.setdefault(name, []).append(done)
            return done.rate

        def join(runtime: Runtime, command: Command, key: Hashable) -> Callable[[int], float]:
            arguments = ("ten" if runtime.name == TEN else self.tools, self.answers)
            era = Era.STATELESS if self.answers == "stateless" else Era.HANDSHAKE
            server = pool.get(key, partial(WebServer, command, *arguments, era=era))
            return partial(burst, server, runtime.name)

        row.pinned = self.one_cpu
        with one_cpu(self.one_cpu):
            key = ("http", self.tools, self.answers, self.one_cpu)
            calls = range(2 * self.window, self.work.most)
            players = self.players(tuned(runtimes) if self.tuned else runtimes)
            play(row, players, effort, pool, join, key, calls, compared=self.work)
        for name, done in seen.items():
            measured = done[-len(row.samples.get(name, done)) :]  # without the warm-up
            calls_made = sum(b.calls for b in measured)
            row.notes[name] = {
                "answer_bytes": done[-1].answer_size,
                "generator_busy": round(median(b.busy / b.seconds for b in measured), 2),
                "server_cpu_us": round(sum(b.served for b in measured) / calls_made * 1e6, 1),
            }

    def players(self, runtimes: Sequence[Runtime]) -> list[tuple[Runtime, Command]]:
        """Return the runtimes and their servers."""
        stateless = self.answers == "stateless"
        return [(r, r.web) for r in runtimes if r.web and (stateless or r.web_sessions)]


@dataclass(frozen=True, kw_only=True)
class Crowding(Posting):
    """The same with a thousand tools, and Fairlead also with ten."""

    tools: Literal["server", "thousand"] = "thousand"

    def players(self, runtimes: Sequence[Runtime]) -> list[tuple[Runtime, Command]]:
        playing = [(r, c) for r, c in super().players(runtimes) if r.ten or r.thousand]
        if comparing_commits(runtimes):
            return playing
        return playing + [(replace(r, name=TEN), (*c,)) for r, c in playing if r.name == OURS]


class Idling:
    """KiB per idle session, from a thousand of them."""

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        def measure(command: Command) -> float:
            with _session_server(command) as server, server.connect() as line:
                for _ in range(_SETTLING):
                    server.open_session(line)
                before = server.resident
                for _ in range(_IDLE):
                    server.open_session(line)
                return (server.resident - before) / _IDLE / 1024

        bursts = {r.name: partial(measure, r.web) for r in runtimes if r.web and r.web_sessions}
        take_turns(row, bursts, min(3, effort.spawns))


class Cycling:
    """Bytes that the server keeps for each ended session, from thousands of them."""

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        cycles = _CYCLES if effort.full else _CYCLES // 5

        def measure(command: Command) -> float:
            with _session_server(command) as server, server.connect() as line:

                def cycle(times: int) -> int:
                    for _ in range(times):
                        server.end_session(line, server.open_session(line))
                    return server.resident

                before = cycle(_IDLE)
                return max(0, cycle(cycles) - before) / cycles

        bursts = {r.name: partial(measure, r.web) for r in runtimes if r.web and r.build}
        take_turns(row, bursts, 1)


def _session_server(command: Command) -> WebServer:
    return WebServer(command, "server", "json", era=Era.HANDSHAKE)
