"""Counters for calls, failures, durations and protocol violations, in the Prometheus format."""

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..limits import all_limits
from ..redaction.redact_text import redact

__all__ = ["BUCKETS", "OTHER", "Metrics", "Series"]

# Histogram bounds in seconds, from a local call (under 1 ms) to a model call (up to a minute).
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
OTHER: Final = "other"  # label that replaces names beyond the limit
LONGEST: Final = 1000  # maximum length of a name that is examined, in characters
MAX_KINDS: Final = 20  # maximum number of failure kinds that a series counts separately

_HELP: Final = {
    "reconnects": "Reconnections after a loss of the default connection to a server.",
    "malformed": "Received frames that are not valid messages.",
    "unknown_ids": "Responses whose id does not belong to a pending request.",
}


class Series:
    """Counters for the calls of one method and target in one direction."""

    __slots__ = ("buckets", "calls", "errors", "pending", "seconds")

    def __init__(self) -> None:
        self.calls = 0
        self.errors: dict[str, int] = {}
        self.seconds = 0.0
        self.pending = 0
        self.buckets = [0] * (len(BUCKETS) + 1)

    @property
    def only_refused(self) -> bool:
        """Return True if no call returned a result;
        a failed tool's result also counts as a result.
        """
        return "tool" not in self.errors and self.calls == sum(self.errors.values())

    def add(self, other: "Series") -> None:
        self.calls += other.calls
        self.seconds += other.seconds
        self.buckets = [mine + more for mine, more in zip(self.buckets, other.buckets, strict=True)]
        for kind, count in other.errors.items():
            self.failed(kind, count)

    def failed(self, kind: str, count: int = 1) -> None:
        kind = kind if kind in self.errors or len(self.errors) < MAX_KINDS else OTHER
        self.errors[kind] = self.errors.get(kind, 0) + count


class Metrics:
    """All counters. The number of labels is bounded, because peers choose tool names.

    Only names are taken from messages. For resources not even the name is used, because a URI may
    contain any data.
    """

    def __init__(self, *, max_series: int = 500, clock: Callable[[], float] = time.time) -> None:
        self._max_series = max_series
        self._series: dict[tuple[str, str, str], Series] = {}
        # keys are names as received, before redaction
        self._known: dict[tuple[str, str, str], Series] = {}
        self._counts: dict[str, dict[str, float]] = {name: {} for name in _HELP}
        self._seen: dict[tuple[str, str], tuple[object, float]] = {}
        self._refused: dict[tuple[int, str], int] = {}
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._labelled: dict[str, tuple[str, str, Callable[[], Mapping[str, float]]]] = {}
        self._since = clock()

    # Counting

    def began(self, direction: str, method: str, name: str | None = None) -> Series:
        """Count a call that starts; pass the returned series to `ended`."""
        key = direction, method, name or ""
        series = self._known.get(key)
        if series is None:
            if len(self._known) >= self._max_series * 4:
                self._known.clear()
            series = self._find(direction, redact(method[:LONGEST]), redact((name or "")[:LONGEST]))
            # Long names are redacted each time, because caching them would cost too much memory.
            if len(method) + len(key[2]) <= LONGEST:
                self._known[key] = series
        series.pending += 1
        return series

    def ended(self, series: Series, seconds: float, error: str | None = None) -> None:
        """Count a call that ended; `error` is the kind of its failure (a code,
        "tool", "cancelled").
        """
        series.pending -= 1
        series.calls += 1
        series.seconds += seconds
        series.buckets[bisect_left(BUCKETS, seconds)] += 1
        if error is not None:
            series.failed(error)

    def count(self, what: str, server: str = "", by: float = 1) -> None:
        """Increment `reconnects`, `malformed` or `unknown_ids`."""
        counts = self._counts[what]
        if server not in counts and len(counts) >= self._max_series:
            server = OTHER
        counts[server] = counts.get(server, 0) + by

    def follow(self, what: str, server: str, source: object, value: float) -> None:
        """Add the increase of an external counter, which starts at 0 for each `source`."""
        before = self._seen.get((what, server))
        known = before[1] if before is not None and before[0] is source else 0
        # Shown as 0 from the start, so that rates can be computed.
        self.count(what, server, 0)
        self._seen[what, server] = source, value
        if value > known:
            self.count(what, server, value - known)

    def refused(self, status: int, reason: str) -> None:
        """Count a request that was refused because of its headers or its token."""
        self._refused[status, reason] = self._refused.get((status, reason), 0) + 1

    def gauge(self, name: str, help: str, read: Callable[[], float]) -> None:
        """Register a gauge that is read on every request for metrics."""
        self._gauges[name] = help, read

    def labelled_gauge(
        self, name: str, help: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """Register a gauge with one value for each value of a label."""
        self._labelled[name] = help, label, read

    def _find(self, direction: str, method: str, name: str) -> Series:
        key = direction, method[:100], name[:100]
        if key not in self._series and len(self._series) >= self._max_series:
            self._fold_refused()
        if key not in self._series and len(self._series) >= self._max_series:
            known = any(one[:2] == key[:2] for one in self._series)
            key = direction, key[1] if known else OTHER, OTHER
        return self._series.setdefault(key, Series())

    def _fold_refused(self) -> None:
        """Merge series without a result into "other", because most of their names do not exist."""
        refused = [
            key
            for key, one in self._series.items()
            if key[2] not in ("", OTHER) and not one.pending and one.only_refused
        ]
        for key in refused:
            others = self._series.setdefault((*key[:2], OTHER), Series())
            others.add(self._series.pop(key))
        # Cleared only after a merge; otherwise every call beyond the limit would clear it.
        if refused:
            self._known.clear()

    # Showing

    def snapshot(self) -> dict[str, Any]:
        """Return all counters as plain data."""
        return {
            "since": self._since,
            "pending": sum(one.pending for one in self._series.values()),
            "calls": [
                {
                    "direction": direction,
                    "method": method,
                    "name": name or None,
                    "calls": one.calls,
                    "errors": dict(one.errors),
                    "pending": one.pending,
                    "seconds": one.seconds,
                    "mean": one.seconds / one.calls if one.calls else None,
                    "p50": _quantile(one, 0.5),
                    "p95": _quantile(one, 0.95),
                }
                for (direction, method, name), one in sorted(self._series.items())
            ],
            **{what: dict(counts) for what, counts in self._counts.items()},
            "limits": {limit.name: limit.hits for limit in all_limits() if limit.hits},
            "refused": [
                {"status": status, "reason": reason, "requests": count}
                for (status, reason), count in sorted(self._refused.items())
            ],
            "gauges": {
                **{name: read() for name, (_, read) in self._gauges.items()},
                **{name: dict(read()) for name, (*_, read) in self._labelled.items()},
            },
        }

    def prometheus(self) -> str:
        """Return all counters in the Prometheus text format, version 0.0.4."""
        lines: list[str] = []
        series = [(_labels(*key), one) for key, one in sorted(self._series.items())]
        _head(lines, "calls_total", "counter", "Requests that succeeded, failed or were cancelled.")
        lines += [f"fairlead_calls_total{{{labels}}} {one.calls}" for labels, one in series]
        _head(
            lines,
            "errors_total",
            "counter",
            "Requests without a successful result, by kind of failure.",
        )
        for labels, one in series:
            for kind, count in sorted(one.errors.items()):
                lines.append(f'fairlead_errors_total{{{labels},error="{_safe(kind)}"}} {count}')
        _head(lines, "pending", "gauge", "Requests that have no response yet.")
        lines += [f"fairlead_pending{{{labels}}} {one.pending}" for labels, one in series]
        _head(lines, "call_seconds", "histogram", "Duration of requests.")
        for labels, one in series:
            lines += _histogram(labels, one)
        for what, counts in self._counts.items():
            _head(lines, f"{what}_total", "counter", _HELP[what])
            for server, much in sorted(counts.items()):
                lines.append(f'fairlead_{what}_total{{server="{_safe(server)}"}} {_number(much)}')
        _head(lines, "limit_hits_total", "counter", "How often a limit was applied, by limit name.")
        lines += [
            f'fairlead_limit_hits_total{{limit="{limit.name}"}} {limit.hits}'
            for limit in all_limits()
        ]
        _head(lines, "refused_total", "counter", "Requests refused by their headers or token.")
        lines += [
            f'fairlead_refused_total{{status="{status}",reason="{_safe(reason)}"}} {count}'
            for (status, reason), count in sorted(self._refused.items())
        ]
        for name, (help, read) in self._gauges.items():
            _head(lines, name, "gauge", help)
            lines.append(f"fairlead_{name} {_number(read())}")
        for name, (help, label, values) in self._labelled.items():
            _head(lines, name, "gauge", help)
            for of, value in sorted(values().items()):
                lines.append(f'fairlead_{name}{{{label}="{_safe(of)}"}} {_number(value)}')
        return "\n".join(lines) + "\n"


def _head(lines: list[str], name: str, kind: str, help: str) -> None:
    lines += [f"# HELP fairlead_{name} {help}", f"# TYPE fairlead_{name} {kind}"]


def _labels(direction: str, method: str, name: str) -> str:
    # Methods such as `tools/list` have no name.
    named = f',name="{_safe(name)}"' if name else ""
    return f'direction="{_safe(direction)}",method="{_safe(method)}"{named}'


def _histogram(labels: str, one: Series) -> list[str]:
    lines, total = [], 0
    for bound, count in zip(BUCKETS, one.buckets, strict=False):
        total += count
        lines.append(f'fairlead_call_seconds_bucket{{{labels},le="{bound:g}"}} {total}')
    lines.append(f'fairlead_call_seconds_bucket{{{labels},le="+Inf"}} {one.calls}')
    lines.append(f"fairlead_call_seconds_sum{{{labels}}} {one.seconds:.6f}")
    lines.append(f"fairlead_call_seconds_count{{{labels}}} {one.calls}")
    return lines


def _quantile(one: Series, part: float) -> float | None:
    """Return the upper bound of the bucket that contains this quantile;
    None if it is above all bounds.
    """
    wanted, total = part * one.calls, 0
    for bound, count in zip(BUCKETS, one.buckets, strict=False):
        total += count
        if one.calls and total >= wanted:
            return float(bound)
    return None


def _number(value: float) -> str:
    """Return all digits of a number: a rounded counter would stay constant and then jump."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _safe(text: str) -> str:
    shown = text[:100].replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return shown.encode("utf-8", "replace").decode()
