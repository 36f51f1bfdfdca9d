"""`python -m bench`: measure, print the table and store the results."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import Console

from . import against
from .cases import CASES, PLANS
from .envs import BENCH
from .measures import Effort
from .plot import draw
from .pool import Pool
from .report import show, summarize
from .rounds import OURS, Row, Target
from .runtimes import Runtime, discover, with_noise

_RESULTS = BENCH / "results"
_FULL = Effort(rounds=7, spawns=5, seconds=0.15, warm_up=0.4, idle=30)
_QUICK = Effort(
    rounds=3,
    spawns=2,
    seconds=0.08,
    warm_up=0.1,
    idle=5,
    longest_warm_up=1,
    row_seconds=3,
    full=False,
)


def main() -> int:
    """Run the named cases, by default all; return 1 if Fairlead could not be measured."""
    options = _options()
    # The peers were compiled to bytecode at installation, Fairlead is at its first import.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    effort = _QUICK if options.quick else _FULL
    if options.rounds:
        spawns = min(options.rounds, effort.spawns)
        effort = replace(effort, rounds=options.rounds, spawns=spawns)
    if options.against:
        return _compare(options, effort)
    start, load = time.monotonic(), os.getloadavg()[0]
    runtimes, skipped = discover()
    for name, reason in skipped.items():
        print(f"skipping {name}: {reason}", file=sys.stderr)
    rows = _measure(options, with_noise(runtimes), effort)
    show(_console(), rows, skipped, load)

    facts = summarize(rows, runtimes, skipped, load, options.quick)
    facts["seconds"] = round(time.monotonic() - start)
    summary = msgspec.json.format(msgspec.json.encode(facts), indent=2)
    if options.json:
        options.json.write_bytes(summary + b"\n")
    if not options.cases and not options.quick:
        _RESULTS.mkdir(exist_ok=True)
        (_RESULTS / "latest.json").write_bytes(summary + b"\n")
        (_RESULTS / "stdio.svg").write_text(draw(facts))
        print("wrote bench/results; `make tables` updates the pages that quote it", file=sys.stderr)
    return int(any(OURS in row.failed for row in rows))


def _compare(options: argparse.Namespace, effort: Effort) -> int:
    """Compare with another commit; return 1 if a build of Fairlead could not be measured."""
    other = against.other_build(options.against)
    ours = next(runtime for runtime in discover(only=OURS)[0])
    builds, targets = against.compare(ours, other)
    load = os.getloadavg()[0]
    rows = _measure(options, builds, effort, targets)
    against.show(_console(), rows, other.name, load)
    if options.json:
        facts = against.summarize(rows, other.name, load, options.quick)
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
    return int(any(OURS in row.failed for row in rows))


def _measure(
    options: argparse.Namespace,
    runtimes: Sequence[Runtime],
    effort: Effort,
    targets: tuple[Target, ...] | None = None,
) -> list[Row]:
    """Measure the chosen rows; `targets` replaces the targets of each row."""
    start, rows = time.monotonic(), list[Row]()
    with Pool() as pool:
        for plan in PLANS:
            if plan.case not in (options.cases or CASES) or (options.quick and not plan.targets):
                continue
            print(f"{time.monotonic() - start:4.0f} s  {plan.case}, {plan.label}", file=sys.stderr)
            row = plan.row()
            if targets is not None:
                row.targets = targets
            named = {target.peer for target in plan.targets}
            taking_part = [r for r in runtimes if effort.full or r.build or r.name in named]
            plan.measure(row, taking_part, effort, pool)
            rows.append(row)
    return rows


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 160)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Fairlead against the other MCP runtimes, in one interleaved run.",
        epilog="A full run also writes bench/results/latest.json and stdio.svg.",
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"one of: {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of bursts in each row")
    parser.add_argument("--quick", action="store_true", help="shorter, and only what has a target")
    parser.add_argument(
        "--against",
        metavar="REF",
        help="compare with another commit of Fairlead instead of with other runtimes",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there as well")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
