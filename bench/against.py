"""Comparison of two commits in one run: another build, this one, and this one a second time.

All three take turns in each round. The ratio of this build to the other is the figure; the ratio of
this build to itself is the noise of the figure.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .envs import BENCH, ROOT
from .report import failures, figure, machine, spread
from .rounds import AGAIN, OURS, Row, Target
from .runtimes import Runtime, fairlead_build

__all__ = ["LEAST", "compare", "other_build", "show", "summarize"]

LEAST = 0.95
_BUILDS = BENCH / ".env" / "builds"


def other_build(ref: str) -> Runtime:
    """Return the build of a commit, which is installed if an earlier run did not do so.

    Raises:
        SystemExit: The commit does not exist or cannot be installed.
    """
    commit = _output("git", "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if not commit:
        raise SystemExit(
            f"unknown commit {ref!r}: expected a branch, tag or hash of this repository"
        )
    tree = _BUILDS / commit[:12]
    stamp, python = tree / ".venv" / ".stamp", tree / ".venv" / "bin" / "python"
    if not stamp.exists():
        print(f"building {ref} ({commit[:12]})", file=sys.stderr)
        shutil.rmtree(tree, ignore_errors=True)
        _run("git", "worktree", "prune")
        _run("git", "worktree", "add", "--detach", "--force", str(tree), commit)
        _run(sys.executable, "-m", "venv", str(tree / ".venv"))
        quiet = ("-q", "--disable-pip-version-check")
        # The libraries of this environment, so that only the code of Fairlead differs.
        pins = _output(sys.executable, "-m", "pip", "freeze", "--exclude-editable")
        constraints = tree / ".venv" / "constraints.txt"
        constraints.write_text(pins + "\n")
        _run(str(python), "-m", "pip", "install", *quiet, "-c", str(constraints), "-e", str(tree))
        stamp.touch()
    return fairlead_build(commit[:12], commit[:12], python, tree / "bench")


def compare(ours: Runtime, other: Runtime) -> tuple[list[Runtime], tuple[Target, ...]]:
    """Return the builds and the targets of every row."""
    target = Target(f"≥ {LEAST:g}", other.name, least=LEAST)
    return [ours, replace(ours, name=AGAIN), other], (target,)


def show(console: Console, rows: Sequence[Row], other: str, load: float) -> None:
    """Print the ratio of every row, with the noise of the run beside it."""
    table = Table(title=f"Fairlead against its commit {other}", title_justify="left")
    for heading in ("case", "row"):
        table.add_column(heading, no_wrap=True)
    for heading in ("now", other, "ratio", "middle half", "noise (A/A)", "middle half"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in rows:
        table.add_row(row.case, row.label, *_cells(row, other))
    console.print(table)
    judged = [row.met(target) for row in rows for target in row.targets]
    console.print(
        f"[dim]ratio: median over the rounds of now to {other}, above 1 is better now; "
        f"noise: the same build twice. Load before the run: {load:.1f}[/]"
    )
    console.print(f"rows at {LEAST:g} or better: {judged.count(True)} of {len(judged)}")
    for text, places in failures(rows).items():
        console.print(f"[red]failed[/] {', '.join(places)}:")
        console.print(f"[dim]{escape(text)}[/]", highlight=False)


def summarize(rows: Iterable[Row], other: str, load: float, quick: bool) -> dict[str, Any]:
    """Return the results of a comparison for a file."""
    return {
        "machine": machine(),
        "load_before": round(load, 2),
        "quick": quick,
        "now": _output("git", "rev-parse", "--short=12", "HEAD"),
        "against": other,
        "rows": [
            {
                "case": row.case,
                "label": row.label,
                "unit": row.unit,
                "builds": {name: spread(values) for name, values in row.samples.items()},
                "ratio": _ratio(row, other),
                "noise": _ratio(row, AGAIN),
                "failed": dict(row.failed),
            }
            for row in rows
        ],
    }


def _cells(row: Row, other: str) -> list[str]:
    ratio, noise = row.ratio(OURS, other), row.ratio(OURS, AGAIN)
    cells = [figure(row.value(OURS), row.unit), figure(row.value(other), row.unit)]
    for one in (ratio, noise):
        cells += [f"{one.median:.3f}", f"{one.low:.2f}-{one.high:.2f}"] if one else ["", ""]
    if ratio is None:
        return [*cells, "[yellow]not measured[/]"]
    return [*cells, "" if ratio.median >= LEAST else "[red]slower[/]"]


def _ratio(row: Row, name: str) -> Mapping[str, float] | None:
    ratio = row.ratio(OURS, name)
    if ratio is None:
        return None
    return {
        "median": round(ratio.median, 4),
        "low": round(ratio.low, 4),
        "high": round(ratio.high, 4),
    }


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout.strip() if done.returncode == 0 else ""


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        output = (done.stderr or done.stdout).strip()
        raise SystemExit(
            f"`{' '.join(Path(word).name for word in command[:4])} ...`: {output[-1500:]}"
        )
