"""Interleaved rounds: every runtime runs a short burst per round, and bursts of one round are
compared.

The speed of a shared machine may double from one second to the next. Two bursts of the same round
run under similar conditions, so their ratio is meaningful; the figure is the median over the
rounds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles

from .child import Failed

__all__ = ["AGAIN", "OURS", "Ratio", "Row", "Target", "take_turns"]

OURS = "fairlead"
AGAIN = "fairlead again"  # ours a second time in the same rounds: their ratio is the noise
_FEWEST = 3  # rounds, however long they take
_NEAR_ZERO = ("µs", "%", "B")  # units of figures that may be zero: added time, idle load, leaks


@dataclass(frozen=True)
class Target:
    """A target: at least `least` times as good as `peer`, or a figure below `ceiling`."""

    says: str
    peer: str = OURS  # with a ceiling, the figure is our own
    least: float | None = None
    ceiling: float | None = None


@dataclass(frozen=True)
class Ratio:
    """The ratio to a peer over the rounds: the median and the middle half."""

    median: float
    low: float
    high: float


@dataclass
class Row:
    """One measurement of every runtime: a value per round, all from the same rounds."""

    case: str
    label: str
    unit: str
    targets: tuple[Target, ...] = ()
    pinned: bool = False  # all processes share one CPU; otherwise the scheduler places them
    samples: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    notes: dict[str, dict[str, float]] = field(default_factory=dict)  # facts beside the figure

    def value(self, name: str) -> float | None:
        """Return the median of a runtime's own samples, which is context and not the figure."""
        return median(self.samples[name]) if name in self.samples else None

    def ratio(self, ours: str, peer: str) -> Ratio | None:
        """Return how many times better `ours` is than `peer`, round by round."""
        if ours not in self.samples or peer not in self.samples:
            return None
        pairs = zip(self.samples[ours], self.samples[peer], strict=True)
        more_is_better = self.unit == "calls/s"
        ratios = [_quotient(mine, theirs, more_is_better) for mine, theirs in pairs]
        low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        return Ratio(middle, low, high)

    def noise(self) -> Ratio | None:
        """Return the ratio of Fairlead to itself; None for figures near zero."""
        return None if self.unit in _NEAR_ZERO else self.ratio(OURS, AGAIN)

    def noise_difference(self) -> float | None:
        """Return the median difference of Fairlead to itself, for figures near zero."""
        if self.unit not in _NEAR_ZERO or not {OURS, AGAIN} <= self.samples.keys():
            return None
        pairs = zip(self.samples[OURS], self.samples[AGAIN], strict=True)
        return median(abs(one - other) for one, other in pairs)

    def met(self, target: Target) -> bool | None:
        """Return True if a target was met; None without a comparison."""
        if target.ceiling is not None:
            value = self.value(OURS)
            return None if value is None else value < target.ceiling
        ratio = self.ratio(OURS, target.peer)
        return None if ratio is None or target.least is None else ratio.median >= target.least


def _quotient(mine: float, theirs: float, more_is_better: bool) -> float:
    """Return the ratio; figures that may be zero, such as leaked bytes, count as equal."""
    above, below = (mine, theirs) if more_is_better else (theirs, mine)
    if not below:
        return 1.0 if not above else float("inf")
    return above / below


def take_turns(
    row: Row,
    bursts: Mapping[str, Callable[[], float]],
    rounds: int,
    seconds: float = float("inf"),
) -> None:
    """Fill the row's samples; a runtime that fails is noted and dropped.

    The order changes in each round but is the same in every run, so that no runtime always follows
    the same neighbour. After `seconds` no new round begins, unless there were fewer than three.
    """
    taking_part = dict(bursts)
    start_time = time.monotonic()
    for turn in range(rounds):
        if turn >= _FEWEST and time.monotonic() - start_time > seconds:
            break
        names = list(bursts)
        random.Random(turn).shuffle(names)
        for name in names:
            if name not in taking_part:
                continue
            try:
                row.samples.setdefault(name, []).append(taking_part[name]())
            except Failed as failure:
                row.failed[name] = str(failure)
                row.samples.pop(name, None)
                del taking_part[name]
    row.samples = {name: row.samples[name] for name in bursts if name in row.samples}
