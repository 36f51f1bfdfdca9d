"""How each kind of figure is measured; `cases.py` says which ones."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Protocol

from .callers import Caller
from .child import Failed
from .cpu import one_cpu
from .envs import ROOT
from .load import Burst, Session
from .pool import Pool
from .requests import LARGE, SMALL, Era
from .rounds import Row, take_turns
from .runtimes import BARE, Runtime

__all__ = ["Calling", "Effort", "Importing", "Measure", "Remembering", "Serving", "Starting"]

_MOST_LARGE_CALLS = 400  # in one burst, which is prepared in memory: 26 MB
_MOST_CALLS = 50_000


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int  # of bursts, which are short
    spawns: int  # rounds in which every runtime starts a process
    seconds: float  # of one burst
    warm_up: float  # seconds before the first one


class Measure(Protocol):
    """Fills a row with samples of every runtime that has what it takes."""

    def __call__(
        self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool
    ) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Calls per second of each runtime's server, under our own load generator."""

    window: int = 1
    size: int = SMALL
    era: Era = Era.HANDSHAKE
    one_cpu: bool = False

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        seen: dict[str, list[Burst]] = {}

        def burst(session: Session, name: str, calls: int) -> float:
            done = session.burst(calls, window=self.window, size=self.size)
            seen.setdefault(name, []).append(done)
            return done.rate

        def join(runtime: Runtime, key: Hashable) -> Callable[[int], float]:
            session = pool.get(key, partial(Session, runtime.servers[self.era], self.era))
            return partial(burst, session, runtime.name)

        most = _MOST_LARGE_CALLS if self.size == LARGE else _MOST_CALLS
        players = [r for r in runtimes if self.era in r.servers]
        with one_cpu(self.one_cpu):
            key = ("server", self.era, self.one_cpu)
            _play(row, players, effort, pool, join, key, range(2 * self.window, most))
        for name, done in seen.items():
            row.notes[name] = {
                "answer_bytes": done[-1].answer_size,
                "generator_busy": round(median(b.busy / b.seconds for b in done), 2),
            }


@dataclass(frozen=True, kw_only=True)
class Calling:
    """Calls per second of each runtime's client, against the bare server."""

    window: int = 1
    loop: str = "asyncio"
    one_cpu: bool = False

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        def join(runtime: Runtime, key: Hashable) -> Callable[[int], float]:
            caller = pool.get(key, partial(Caller, runtime.clients[self.loop], BARE))
            return partial(caller.burst, window=self.window)

        players = [r for r in runtimes if self.loop in r.clients]
        with one_cpu(self.one_cpu):
            key = ("client", self.loop, self.one_cpu)
            _play(row, players, effort, pool, join, key, range(2 * self.window, _MOST_CALLS))


class Importing:
    """Milliseconds of importing the package, less those of starting the interpreter."""

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        def measure(commands: tuple[Sequence[str], Sequence[str]]) -> float:
            with_import, without = map(_run, commands)
            return (with_import - without) * 1000

        bursts = {r.name: partial(measure, r.imports) for r in runtimes if r.imports}
        take_turns(Row("", "", ""), bursts, 1)  # the first import writes bytecode
        take_turns(row, bursts, effort.spawns)


class Remembering:
    """Megabytes resident in a server of ten tools, after a list and a hundred calls."""

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        def measure(command: Sequence[str]) -> float:
            with Session(command) as session:
                session.burst(100, window=1, size=SMALL)
                return session.resident

        bursts = {r.name: partial(measure, r.ten) for r in runtimes if r.ten}
        take_turns(row, bursts, min(3, effort.spawns))  # it hardly varies


class Starting:
    """Milliseconds from spawning a server of ten tools to its answer to `tools/list`."""

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        def measure(command: Sequence[str]) -> float:
            start = time.perf_counter()
            with Session(command):
                return (time.perf_counter() - start) * 1000

        bursts = {r.name: partial(measure, r.ten) for r in runtimes if r.ten}
        take_turns(row, bursts, effort.spawns)


def _play(
    row: Row,
    runtimes: Sequence[Runtime],
    effort: Effort,
    pool: Pool,
    join: Callable[[Runtime, Hashable], Callable[[int], float]],
    kind: Hashable,
    calls: range,
) -> None:
    """Open and warm up every runtime, then let them take turns with bursts of equal length."""
    bursts: dict[str, Callable[[], float]] = {}
    for runtime in runtimes:
        try:
            burst = join(runtime, (kind, runtime.name))
            size = _warm_up(burst, calls, effort.seconds, effort.warm_up * runtime.warm_up)
        except Failed as failure:
            row.failed[runtime.name] = str(failure)
        else:
            bursts[runtime.name] = partial(burst, size)
    take_turns(row, bursts, effort.rounds)
    for name in row.failed:
        pool.drop((kind, name))


def _warm_up(burst: Callable[[int], float], calls: range, seconds: float, at_least: float) -> int:
    """How many calls fill `seconds`, found while warming up."""
    count, spent = calls.start, 0.0
    while spent < at_least:
        rate = burst(count)
        spent += count / rate
        wanted = min(rate * seconds, count * 4)  # the first ones are slow: approach from below
        count = min(calls.stop, max(calls.start, int(wanted)))
    return count


def _run(command: Sequence[str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise Failed(done.stderr.replace(f"{ROOT}/", "").strip()[-2000:])
    return seconds
