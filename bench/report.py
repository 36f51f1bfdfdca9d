"""Table of results on the terminal and as JSON."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median, quantiles
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .envs import ROOT
from .rounds import AGAIN, OURS, Ratio, Row
from .runtimes import Runtime

__all__ = ["failures", "figure", "machine", "show", "spread", "summarize"]

_FLOOR = "bare"
_BUSY = 0.8
_SETTINGS = (
    "All give equal answers, texts also as structured content, and run with their default "
    "settings, except that Fairlead's rate limit is off, because the others have none. Rows called "
    "tuned say what differs."
)


def show(console: Console, rows: Sequence[Row], skipped: Mapping[str, str], load: float) -> None:
    """Print the ratios, their targets and all failures.

    `load` is the load average before the run.
    """
    table = Table(title="Fairlead against its peers", title_justify="left", header_style="bold")
    table.add_column("case", no_wrap=True)
    table.add_column("peer", no_wrap=True)
    table.add_column("CPUs", no_wrap=True)
    for heading in ("fairlead", "peer's", "times better", "middle half", "bare's"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("noise", justify="right", no_wrap=True)
    table.add_column("target", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in rows:
        _add(table, row)
    console.print(table)
    console.print(
        "[dim]times better: median of the rounds' ratios; above 1 is in our favour. "
        f"{_SETTINGS} "
        "bare's: the same ratio for a bare loop, the most that is to be had here. "
        "noise: middle half of the ratios of ours to ours, measured twice in the same rounds.[/]"
    )
    judged = [row.met(target) for row in rows for target in row.targets]
    console.print(f"targets met: {judged.count(True)} of {len(judged)}")
    if load > _BUSY:
        console.print(
            f"[yellow]This machine was busy (load {load:.1f}) before the run; calls in flight need "
            "a second CPU for the generator, and those ratios come out low without it.[/]"
        )
    for name, reason in skipped.items():
        console.print(f"[yellow]skipped[/] {name}: {escape(reason)}")
    for text, places in failures(rows).items():
        console.print(f"[red]failed[/] {', '.join(places)}:")
        console.print(f"[dim]{escape(text)}[/]", highlight=False)


def _add(table: Table, row: Row) -> None:
    table.add_section()
    headings = [f"[bold]{row.case}[/]", f"[dim]{row.label}[/]"]
    noise = row.noise()
    for name in dict.fromkeys([*row.samples, *row.failed]):
        if name == AGAIN and name not in row.failed:
            continue
        wanted = [target for target in row.targets if target.peer == name]
        if name == OURS and not wanted and row.samples.keys() - {OURS, AGAIN}:
            continue
        ratio = row.ratio(OURS, name) if name != OURS else None
        reach = row.ratio(_FLOOR, name) if name != _FLOOR else None
        table.add_row(
            headings.pop(0) if headings else "",
            name,
            "one" if row.pinned else "any",
            "[red]failed[/]" if OURS in row.failed else figure(row.value(OURS), row.unit),
            "[red]failed[/]" if name in row.failed else figure(row.value(name), row.unit),
            _times(ratio),
            f"{ratio.low:.3g}–{ratio.high:.3g}" if ratio else "",
            f"[dim]{_times(reach)}[/]",
            f"[dim]{noise.low:.2f}–{noise.high:.2f}[/]" if noise else "",
            "\n".join(target.says for target in wanted),
            "\n".join(_mark(row.met(target)) for target in wanted),
        )
    for heading in headings:
        table.add_row(heading)


def failures(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Return the failures with their rows; equal ones only once."""
    places: dict[str, list[str]] = {}
    for row in rows:
        for name, text in row.failed.items():
            place = f"{name} in {row.case}"
            if place not in places.setdefault(text, []):
                places[text].append(place)
    return places


def figure(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "calls/s":
        return f"{value:,.0f}/s"
    return f"{value:.3f} {unit}" if value < 1 else f"{value:,.1f} {unit}"


def _times(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio.median:.2f}×" if ratio.median < 10 else f"{ratio.median:.1f}×"


def _mark(met: bool | None) -> str:
    return {True: "[green]met[/]", False: "[red]not met[/]", None: "[yellow]not measured[/]"}[met]


def summarize(
    rows: Iterable[Row],
    runtimes: Iterable[Runtime],
    skipped: Mapping[str, str],
    load: float,
    quick: bool,
) -> dict[str, Any]:
    """Return the results of a run for a file."""
    kept = list(rows)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _output("git", "rev-parse", "--short=12", "HEAD"),
        "settings": _SETTINGS,
        "machine": machine(),
        "load_before": round(load, 2),
        "quick": quick,
        "runtimes": {runtime.name: runtime.version for runtime in runtimes},
        "skipped": dict(skipped),
        "noise": _noise(kept),
        "rows": [_summarize(row) for row in kept],
    }


def _noise(rows: Iterable[Row]) -> dict[str, float | int] | None:
    """Return by how many percent the medians of Fairlead against itself differ from 1."""
    found = sorted(abs(ratio.median - 1) * 100 for row in rows if (ratio := row.noise()))
    if not found:
        return None
    return {
        "median_percent": _short(median(found)),
        "most_percent": _short(found[-1]),
        "rows": len(found),
    }


def machine() -> dict[str, str | int | None]:
    """Return the properties of the machine that affect the figures."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "node": _output("node", "--version").lstrip("v") or None,
    }


def _summarize(row: Row) -> dict[str, Any]:
    return {
        "case": row.case,
        "label": row.label,
        "unit": row.unit,
        "cpus": "one" if row.pinned else "any",
        "runtimes": {
            name: {**spread(values), **row.notes.get(name, {})}
            for name, values in row.samples.items()
        },
        "times_better": {
            name: {"median": _short(r.median), "low": _short(r.low), "high": _short(r.high)}
            for name in row.samples
            if name not in (OURS, AGAIN) and (r := row.ratio(OURS, name))
        },
        "noise": _noise_of(row),
        "targets": [
            {"peer": target.peer, "says": target.says, "met": row.met(target)}
            for target in row.targets
        ],
        "failed": {name: text.splitlines()[-1] for name, text in row.failed.items()},
    }


def _noise_of(row: Row) -> dict[str, float] | None:
    if ratio := row.noise():
        return {
            "median": _short(ratio.median),
            "low": _short(ratio.low),
            "high": _short(ratio.high),
        }
    difference = row.noise_difference()
    return None if difference is None else {"difference": _short(difference)}


def spread(values: list[float]) -> dict[str, float]:
    low, middle, high = quantiles(values, n=4) if len(values) > 1 else values * 3
    return {
        "median": _short(middle),
        "low": _short(low),
        "high": _short(high),
        "least": _short(min(values)),
        "most": _short(max(values)),
        "rounds": len(values),
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            return next(line.partition(":")[2].strip() for line in info if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
