"""Cost of interceptors in Fairlead's relay.

Every figure compares the relay with itself, in turns: calls per second, and for rules the added CPU
time, because that is small compared with the noise of wall time. The results contain the CPU time
of the relay's process per call.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from .calls import Echo
from .cpu import one_cpu
from .load import Burst, Session
from .measures import Effort, play, pool_key
from .pool import Pool
from .requests import Era
from .rounds import AGAIN, OURS, Row
from .runtimes import INSTANT, Command, Runtime, builds_of, comparing_commits
from .web import WebServer

__all__ = ["GUARDED", "PASSING", "RULES", "WITHOUT", "Adding", "Watching"]

WITHOUT = "bare relay"  # Fairlead without interceptors: a request does not even need a task
PASSING = "passing"  # ours with one interceptor, which does nothing
GUARDED = "guarded"  # ours with allow and deny, a rate limit, redaction and a journal
RULES = {  # by what they look at: in `watched_relay.py`, and in the table
    "method": "method",
    "tool": "tool",
    "params": "a value in params",
    "patterns": "a pattern there",
    "paths": "path in params",
    "headers": "header",
    "identity": "identity",
    "nested": "all, any and not",
}
_KINDS = {WITHOUT: "bare", PASSING: "passing", GUARDED: "guarded"}
_SHORT = Echo()


@dataclass(frozen=True, kw_only=True)
class Watching:
    """Calls per second through the relay with the interceptors `how`, and through the others."""

    how: str
    others: Sequence[str] = (WITHOUT, PASSING)
    http: bool = False
    window: int = 1

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        for name, spent in self.spend(row, runtimes, effort, pool).items():
            row.notes[name] = {"cpu_us": round(median(spent), 1)}

    def spend(
        self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool
    ) -> dict[str, list[float]]:
        """Fill the row, and return the CPU microseconds per call of each, round by round."""
        seen: dict[str, list[Burst]] = {}

        def burst(server: Session | WebServer, name: str, calls: int) -> float:
            done = server.burst(_SHORT, calls, window=self.window)
            seen.setdefault(name, []).append(done)
            return done.rate

        def join(runtime: Runtime, command: Command, key: Hashable) -> Callable[[int], float]:
            server: Session | WebServer
            if self.http:
                server = pool.get(key, partial(WebServer, command, era=Era.HANDSHAKE))
            else:
                server = pool.get(key, partial(Session, command))
            return partial(burst, server, runtime.name)

        with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
            players = self._players(builds_of(runtimes), folder)
            key = ("watching", self.http, self.window)
            row.pinned = self.window == 1
            with one_cpu(row.pinned):
                calls = range(2 * self.window, _SHORT.most)
                play(row, players, effort, pool, join, key, calls, compared=_SHORT)
            for runtime, command in players:
                pool.drop(pool_key(key, runtime, command))  # before the directory is deleted
        return {
            name: [one.served / one.calls * 1e6 for one in seen[name][-len(rates) :]]  # no warm-up
            for name, rates in row.samples.items()
        }

    def _players(self, builds: Sequence[Runtime], folder: str) -> list[tuple[Runtime, Command]]:
        """Return the relay with `how` and the others, or every build with `how`."""
        ours = builds[0]
        kinds: Mapping[str, str] = {}
        if not comparing_commits(builds):
            kinds = {name: _KINDS[name] for name in self.others}
        return [
            *((one, self._command(one, self.how, folder)) for one in builds),
            *(
                (Runtime(name=name, version=""), self._command(ours, kind, folder))
                for name, kind in kinds.items()
            ),
        ]

    def _command(self, build: Runtime, kind: str, folder: str) -> Command:
        assert build.watched is not None
        http = ("--http", "{port}") if self.http else ()
        return (*build.watched, kind, f"{folder}/{build.name}-{kind}", *http, *INSTANT)


@dataclass(frozen=True, kw_only=True)
class Adding(Watching):
    """CPU microseconds that rules which do not match add to each call."""

    def __call__(self, row: Row, runtimes: Sequence[Runtime], effort: Effort, pool: Pool) -> None:
        spent = self.spend(row, runtimes, effort, pool)
        if comparing_commits(runtimes):
            row.samples = spent
            return
        row.samples.clear()
        for ours in (OURS, AGAIN):
            for name in self.others:
                if ours not in spent or name not in spent:
                    continue
                added = [more - less for more, less in zip(spent[ours], spent[name], strict=True)]
                if name == self.others[0]:
                    row.samples[ours] = added
                else:
                    row.notes[ours] = {f"over {name}": round(median(added), 2)}
