"""Exchanges as lines for a person: when, which way, what, how long, and how it ended."""

import time
from typing import TextIO

import msgspec
from msgspec import Raw, UnsetType

from ..gateway.journal.record import Record
from ..protocol.envelope import Direction
from .failed import styled
from .output import pretty, safe, size, visible

__all__ = ["Lines", "took"]

_COLOURS = {
    "ok": "32",
    "passed": "2",
    "failed": "31",
    "refused": "31",
    "lost": "31",
    "cancelled": "33",
    "pending": "33",
}


class Lines:
    """Writes records to a stream, in colour where it is a terminal."""

    def __init__(self, stream: TextIO, *, details: bool = False) -> None:
        self._stream = stream
        self._details = details

    def show(self, record: Record, *, details: bool | None = None) -> None:
        self._stream.write(self._line(record) + "\n")
        if self._details if details is None else details:
            for part in _details(record):
                self._stream.write("".join(f"    {line}\n" for line in part.splitlines()))

    def _line(self, record: Record) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.at)) + f"{record.at % 1:.3f}"[1:]
        up = record.dir is Direction.CLIENT_TO_SERVER
        arrow = self._styled("→", "36") if up else self._styled("←", "35")
        parts = [
            self._styled(f"{at} {f'#{record.id}':>5}", "2"),
            arrow,
            self._what(record),
            self._outcome(record),
        ]
        if record.flags:
            parts.append(self._styled(f"[{', '.join(record.flags)}]", "1;33"))
        if record.did:
            parts.append(self._styled(visible("; ".join(record.did)), "2"))
        return "  ".join(part for part in parts if part)

    def _what(self, record: Record) -> str:
        if record.kind == "stray":
            return f"stray: {visible(record.text or '')[:200] or size(record.size)}"
        if record.kind == "answer":
            return f"answer to id {visible(str(record.request_id))[:50]}"
        target = "" if record.target is None else f" {self._styled(visible(record.target), '1')}"
        return f"{visible(record.method)}{target}"

    def _outcome(self, record: Record) -> str:
        if record.kind in ("stray", "notification"):
            return ""
        words = [] if record.duration is None else [took(record.duration)]
        words.append(self._styled(record.state, _COLOURS[record.state]))
        if record.error:
            code = "" if record.code is None else f"{record.code} "
            words.append(f"{code}{visible(record.error)[:200]}")
        return " ".join(words)

    def _styled(self, text: str, code: str) -> str:
        return styled(text, code, self._stream)


def took(seconds: float) -> str:
    """A duration, for people."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def _details(record: Record) -> list[str]:
    parts = [_part("params", record.params), _part("result", record.result)]
    found = [part for part in parts if part]
    if record.text:
        found.append(safe(record.text))
    if not found and record.size:
        found.append(f"({size(record.size)}, not kept)")
    return found


def _part(name: str, raw: Raw | UnsetType) -> str:
    return "" if isinstance(raw, UnsetType) else f"{name}: {safe(pretty(msgspec.json.decode(raw)))}"
