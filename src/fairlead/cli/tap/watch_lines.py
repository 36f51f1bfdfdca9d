"""Formatting of exchanges as lines: time, direction, method, duration and outcome."""

import re
import shutil
import time
from typing import TextIO

import msgspec
from msgspec import Raw, UnsetType

from ...protocol.envelope import Direction
from ...recording.journal.journal_record import JournalRecord
from ..framework.command_errors import styled
from ..framework.output import format_size, pretty, safe, visible

__all__ = ["RecordPrinter", "format_duration"]

_COLOURS = {
    "ok": "32",
    "passed": "2",
    "failed": "31",
    "refused": "31",
    "lost": "31",
    "cancelled": "33",
    "pending": "33",
}
TEXT = 200  # maximum length of an error, or of text that is not a message, in characters
SHORTEST = 12  # minimum width on a narrow terminal


class RecordPrinter:
    """Prints journal records, with colours on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, record: JournalRecord, *, details: bool = False) -> None:
        self._stream.write(self._fitted(record) + "\n")
        if details:
            for part in _details(record):
                self._stream.write("".join(f"    {line}\n" for line in part.splitlines()))

    def _fitted(self, record: JournalRecord) -> str:
        """Return a line that fits into the terminal,
        so that the outcome at its end stays visible.
        """
        error = len(visible(record.error or "")[:TEXT])
        what = len(visible(record.target or "") or visible(record.text or "")[:TEXT])
        line, width = self._line(record, what, error), self._width()
        if width and (over := _length(line) - width) > 0:
            error = max(error - over, SHORTEST)
            line = self._line(record, what, error)
            if (over := _length(line) - width) > 0:
                line = self._line(record, max(what - over, SHORTEST), error)
        return line

    def _width(self) -> int:
        """Return the terminal's width; 0 if the stream is not a terminal."""
        return shutil.get_terminal_size((0, 0)).columns if self._stream.isatty() else 0

    def _line(self, record: JournalRecord, what: int, error: int) -> str:
        seconds, thousandths = divmod(round(record.at * 1000), 1000)
        at = time.strftime("%H:%M:%S", time.localtime(seconds)) + f".{thousandths:03}"
        up = record.dir is Direction.CLIENT_TO_SERVER
        arrow = self._styled("→", "36") if up else self._styled("←", "35")
        parts = [
            self._styled(f"{at} {f'#{record.id}':>5}", "2"),
            arrow,
            self._what(record, what),
            self._outcome(record, error),
        ]
        if record.flags:
            parts.append(self._styled(f"[{', '.join(record.flags)}]", "1;33"))
        if record.did:
            parts.append(self._styled(visible("; ".join(record.did)), "2"))
        return "  ".join(part for part in parts if part)

    def _what(self, record: JournalRecord, longest: int) -> str:
        if record.kind == "stray":
            return f"stray: {_cut(visible(record.text or ''), longest) or format_size(record.size)}"
        if record.kind == "answer":
            return f"answer to id {visible(str(record.request_id))[:50]}"
        if record.target is None:
            return visible(record.method)
        target = self._styled(_cut(visible(record.target), longest), "1")
        return f"{visible(record.method)} {target}"

    def _outcome(self, record: JournalRecord, longest: int) -> str:
        if record.kind in ("stray", "notification"):
            return ""
        words = [] if record.duration is None else [format_duration(record.duration)]
        words.append(self._styled(record.state, _COLOURS[record.state]))
        if record.error:
            code = "" if record.code is None else f"{record.code} "
            words.append(f"{code}{_cut(visible(record.error), longest)}")
        return " ".join(words)

    def _styled(self, text: str, code: str) -> str:
        return styled(text, code, self._stream)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _length(line: str) -> int:
    """Return the visible length of a line; styles are the only escape sequences in it."""
    return len(re.sub(r"\x1b\[[0-9;]*m", "", line))


def format_duration(seconds: float) -> str:
    """Return a duration with a unit."""
    if seconds < 0.9995:  # larger values would be rounded to 1000 ms
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def _details(record: JournalRecord) -> list[str]:
    parts = [_part("params", record.params), _part("result", record.result)]
    found = [part for part in parts if part]
    if record.text:
        found.append(safe(record.text))
    if not found and record.size:
        found.append(f"({format_size(record.size)}, not kept)")
    return found


def _part(name: str, raw: Raw | UnsetType) -> str:
    return "" if isinstance(raw, UnsetType) else f"{name}: {safe(pretty(msgspec.json.decode(raw)))}"
