"""Measurements of servers and clients; `cases.py` selects them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Protocol

from .callers import Caller
from .calls import Echo, Work
from .child import Failed
from .cpu import one_cpu
from .envs import ROOT
from .equal_answers import difference
from .load import Burst, Session
from .pages import Lists
from .pool import Pool
from .requests import Era
from .rounds import OURS, Row, take_turns
from .runtimes import BARE, BARE_HTTP, Command, Runtime, comparing_commits, tuned
from .web import WebServer

__all__ = [
    "TEXT_ONLY",
    "Calling",
    "Effort",
    "FirstListing",
    "Importing",
    "Listing",
    "Measure",
    "Remembering",
    "Serving",
    "Starting",
    "Structuring",
    "play",
    "pool_key",
    "warm_up",
]

TEXT_ONLY = "text only"  # Fairlead's server without structured content
_SHORT = Echo()
_GROWTH = 4  # the first bursts are slow, so their sizes approach the right one from below


@dataclass(frozen=True)
class Effort:
    """The duration of measurements."""

    rounds: int  # of bursts, which are short
    spawns: int  # rounds in which every runtime starts a process
    seconds: float  # of one burst
    warm_up: float  # seconds before the first one
    idle: float  # seconds in which nothing happens
    longest_warm_up: float = 5  # seconds after which a runtime is taken as it is
    row_seconds: float = 15  # after which no further round begins
    full: bool = True  # all runtimes take part; otherwise those that a target names


class Measure(Protocol):
    """A measurement that fills a row with samples of every suitable runtime."""

    def __call__(
        self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool
    ) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Calls per second of each runtime's server with Fairlead's load generator."""

    work: Work = _SHORT
    window: int = 1
    era: Era = Era.HANDSHAKE
    one_cpu: bool = False
    tuned: bool = False  # with settings that make a runtime faster
    limited: bool = False  # with a rate limit that is not reached, if it has one by default

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        seen: dict[str, list[Burst]] = {}

        def burst(session: Session, name: str, calls: int) -> float:
            done = session.burst(self.asked_of(session), calls, window=self.window)
            seen.setdefault(name, []).append(done)
            return done.rate

        def join(runtime: Runtime, command: Command, key: Hashable) -> Callable[[int], float]:
            session = pool.get(key, partial(Session, command, self.era))
            return partial(burst, session, runtime.name)

        players = self.players(tuned(runtimes) if self.tuned else runtimes)
        row.pinned = self.one_cpu
        with one_cpu(self.one_cpu):
            key = ("server", self.era, self.one_cpu)
            calls = range(2 * self.window, self.most)
            play(row, players, effort, pool, join, key, calls, compared=self.compared)
        for name, done in seen.items():
            row.notes[name] = {
                "answer_bytes": done[-1].answer_size,
                "generator_busy": round(median(b.busy / b.seconds for b in done), 2),
            }

    def players(self, runtimes: Sequence[Runtime]) -> list[tuple[Runtime, Command]]:
        """Return the runtimes that take part, and the commands of their servers."""
        return [(r, servers[self.era]) for r in runtimes if (servers := self.servers_of(r))]

    @property
    def most(self) -> int:
        """The largest number of calls in one burst."""
        return self.work.most

    @property
    def compared(self) -> Work | None:
        """The work whose responses must be equal."""
        return self.work

    def servers_of(self, runtime: Runtime) -> Mapping[Era, Command]:
        """Return the suitable servers of a runtime by era."""
        return runtime.limited if self.limited and runtime.limited else runtime.servers

    def asked_of(self, session: Session) -> Work:
        """Return the requests for a server."""
        return self.work


@dataclass(frozen=True, kw_only=True)
class Structuring(Serving):
    """Calls per second of Fairlead's server, with structured content and without."""

    @property
    def compared(self) -> Work | None:
        return None  # the results differ in their structured content

    def players(self, runtimes: Sequence[Runtime]) -> list[tuple[Runtime, Command]]:
        playing = [(r, c) for r, c in super().players(runtimes) if r.build]
        if comparing_commits(runtimes):
            return playing
        ours = [(r, c) for r, c in playing if r.name == OURS]
        return playing + [(replace(r, name=TEXT_ONLY), (*c, "text-only")) for r, c in ours]


@dataclass(frozen=True, kw_only=True)
class Listing(Serving):
    """Complete lists per second of each runtime's server of a thousand tools."""

    one_page: bool = False  # servers that page are configured for one page

    @property
    def most(self) -> int:
        return Lists.most

    @property
    def compared(self) -> Work | None:
        return None  # each runtime makes its own schemas; `Lists` checks names and descriptions

    def servers_of(self, runtime: Runtime) -> Mapping[Era, Command]:
        return runtime.one_page if self.one_page else runtime.thousand

    def asked_of(self, session: Session) -> Work:
        return session.lists


@dataclass(frozen=True, kw_only=True)
class Calling:
    """Calls per second of each runtime's client, against the bare server."""

    window: int = 1
    loop: str = "asyncio"
    http: bool = False
    one_cpu: bool = False

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        def join(runtime: Runtime, command: Command, key: Hashable) -> Callable[[int], float]:
            caller = pool.get(key, partial(Caller, command, self._server(pool)))
            return partial(caller.burst, window=self.window)

        players = [(r, r.clients[self.loop]) for r in runtimes if self.loop in r.clients]
        row.pinned = self.one_cpu
        with one_cpu(self.one_cpu):
            key = ("client", self.http, self.one_cpu)
            play(row, players, effort, pool, join, key, range(2 * self.window, _SHORT.most))

    def _server(self, pool: Pool) -> Command:
        """Return the target of a client: a command to start, or the URL of a server."""
        if not self.http:
            return BARE
        return (pool.get(("bare http", self.one_cpu), partial(WebServer, BARE_HTTP)).url,)


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
                session.burst(_SHORT, 100, window=1)
                return session.resident

        bursts = {r.name: partial(measure, r.ten) for r in runtimes if r.ten}
        take_turns(row, bursts, min(3, effort.spawns))  # memory hardly varies


class Starting:
    """Milliseconds from spawning a server of ten tools to its answer to `tools/list`."""

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        def measure(command: Sequence[str]) -> float:
            start = time.perf_counter()
            with Session(command):
                return (time.perf_counter() - start) * 1000

        bursts = {r.name: partial(measure, r.ten) for r in runtimes if r.ten}
        take_turns(row, bursts, effort.spawns)


class FirstListing:
    """Milliseconds that the first list of a thousand tools takes, of a server just opened."""

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        def measure(command: Command) -> float:
            with Session(command) as session:
                return session.first_list * 1000

        bursts = {
            r.name: partial(measure, r.thousand[Era.HANDSHAKE]) for r in runtimes if r.thousand
        }
        row.pinned = True
        with one_cpu(True):
            take_turns(row, bursts, min(3, effort.spawns))  # a server of a thousand starts slowly


def play(
    row: Row,
    players: Sequence[tuple[Runtime, Command]],
    effort: Effort,
    pool: Pool,
    join: Callable[[Runtime, Command, Hashable], Callable[[int], float]],
    kind: Hashable,
    calls: range,
    *,
    compared: Work | None = None,
) -> None:
    """Open and warm up every runtime, then take turns with bursts of equal length.

    With `compared`, all runtimes must give the same response to the same call. Otherwise the row
    fails without figures.
    """
    bursts: dict[str, Callable[[], float]] = {}
    for runtime, command in players:
        try:
            key = pool_key(kind, runtime, command)
            is_warm = pool.has(key)
            burst = join(runtime, command, key)
            size = warm_up(burst, calls, effort, runtime, 0 if is_warm else runtime.warm_calls)
        except Failed as failure:
            row.failed[runtime.name] = str(failure)
        else:
            bursts[runtime.name] = partial(burst, size)
    if compared is not None and (trouble := _difference(players, bursts, pool, kind, compared)):
        row.failed |= dict.fromkeys(bursts, trouble)
        bursts = {}
    take_turns(row, bursts, effort.rounds, effort.row_seconds)
    for runtime, command in players:
        if runtime.name in row.failed:
            pool.drop(pool_key(kind, runtime, command))


def _difference(
    players: Sequence[tuple[Runtime, Command]],
    warm: Container[str],
    pool: Pool,
    kind: Hashable,
    work: Work,
) -> str | None:
    """Return how the responses of the runtimes that are warm differ, if they do."""
    answers: dict[str, bytes] = {}
    try:
        for runtime, command in players:
            if runtime.name in warm:
                server = pool.kept(pool_key(kind, runtime, command))
                assert isinstance(server, Session | WebServer)
                answers[runtime.name] = server.ask(work)
        return difference(answers)
    except Failed as failure:
        return str(failure)


def pool_key(kind: Hashable, runtime: Runtime, command: Command) -> Hashable:
    """Return the key of a process; two runtimes with equal commands have a process each."""
    return kind, runtime.name, command


def warm_up(
    burst: Callable[[int], float], calls: range, effort: Effort, runtime: Runtime, least: int
) -> int:
    """Return how many calls fill the time of a burst, found while warming up with `least` or more.

    The first burst may start processes, so a size that follows from it alone would be too small.
    """
    count, spent, made = calls.start, 0.0, 0
    at_least = effort.warm_up * runtime.warm_up
    while True:
        rate = burst(count)
        spent += count / rate
        made += count
        wanted = min(calls.stop, max(calls.start, int(rate * effort.seconds)))
        is_warm = spent >= at_least and (made >= least or spent >= effort.longest_warm_up)
        if is_warm and made > count and wanted <= count * _GROWTH:
            return wanted
        count = min(wanted, count * _GROWTH)


def _run(command: Sequence[str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise Failed(done.stderr.replace(f"{ROOT}/", "").strip()[-2000:])
    return seconds
