"""Output of untrusted text: control characters are escaped, binary content is summarised."""

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from ...observe.safe_display import json_text, prose, safe, visible
from .command_errors import styled

__all__ = [
    "StatusLine",
    "as_json",
    "ask",
    "blocks",
    "brief_error",
    "can_ask",
    "columns",
    "first_line",
    "for_stream",
    "format_size",
    "pluralize",
    "pretty",
    "safe",
    "visible",
    "write",
    "write_styled",
]

_CLEAR = "\r\x1b[K"
# A status line that wraps cannot be erased.
_SHORT = 75
_WIDEST = 40  # maximum width of a table column


def write(text: str) -> None:
    """Write a line to stdout; on a terminal, control characters are escaped."""
    shown = for_stream(text, sys.stdout)
    sys.stdout.write(shown if shown.endswith("\n") else f"{shown}\n")


def for_stream(text: str, stream: TextIO) -> str:
    """Return the text unchanged for a file or pipe, and escaped for a terminal."""
    return prose(text) if stream.isatty() else text


def pretty(value: Any) -> str:
    """Return a value as indented JSON, with control and invisible characters escaped."""
    return json_text(value, indent=2)


def as_json(options: Namespace, value: Any) -> bool:
    """Print a value as JSON if `--json` is set; return True if it was printed."""
    if options.json:
        write(pretty(value))
    return bool(options.json)


def can_ask() -> bool:
    """Return True if a user can be prompted at the terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(prompt: str) -> str:
    """Prompt at the terminal and return the line. Raises `EOFError` at the end of the input."""
    sys.stderr.write(visible(prompt))
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()


class StatusLine:
    """A status line on stderr that is overwritten on each update and erased at the end."""

    def __init__(self) -> None:
        self._dirty = False

    def show(self, text: str) -> None:
        self._dirty = True
        sys.stderr.write(f"{_CLEAR}{visible(text)[:_SHORT]}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._dirty:
            self._dirty = False
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


def write_styled(line: str) -> None:
    """Write a coloured line; untrusted text in it must already be escaped."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def columns(rows: Sequence[Sequence[str | tuple[str, str]]]) -> list[str]:
    """Return table rows as aligned lines. A cell is a string, or a string and its colour.

    Empty columns are omitted. Very long cells may exceed the column width.
    """
    table = [[(cell, "") if isinstance(cell, str) else cell for cell in row] for row in rows]
    table = [[(visible(text), colour) for text, colour in row] for row in table]
    longest = [max(len(text) for text, _ in cells) for cells in zip(*table, strict=True)]
    widths = [min(length, _WIDEST) for length in longest]
    return [
        "  ".join(
            styled(text, colour) + " " * (width - len(text))
            for (text, colour), width in zip(row, widths, strict=True)
            if width
        ).rstrip()
        for row in table
    ]


def blocks(result: Mapping[str, Any], saved: Mapping[int, str] | None = None) -> Iterator[str]:
    """Yield the content of a tool result: text blocks unchanged, other blocks as one line each.

    `saved` are the paths of blocks that were written to files, by position.
    """
    content = [b for b in result.get("content") or () if isinstance(b, Mapping)]
    # If no block contains text, the structured content is shown instead.
    structured = "structuredContent" in result and not any(b.get("text") for b in content)
    for position, block in enumerate(content):
        if block.get("type") != "text":
            yield _described(block, (saved or {}).get(position))
        elif not structured:
            yield str(block.get("text", ""))
    if structured:
        yield pretty(result["structuredContent"])


def pluralize(count: int, what: str) -> str:
    """Return a count with its noun: `1 tool`, `2 tools`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def first_line(error: str) -> str:
    """Return the first line of an error message,
    without the heading for the stderr lines below it.
    """
    return safe(error).strip().partition("\n")[0].removesuffix(". Last lines on stderr:")


def brief_error(error: str) -> str:
    """Return the first line of an error and the last line of the stderr that follows it."""
    first = first_line(error)
    rest = [line.strip().removeprefix("| ") for line in safe(error).strip().splitlines()[1:]]
    last = next((line for line in reversed(rest) if line and not line.startswith("hint:")), "")
    return f"{first}: {last}" if last and last not in first else first


def format_size(count: int) -> str:
    """Return a number of bytes with a unit."""
    if count < 1000:
        return f"{count} byte{'' if count == 1 else 's'}"
    for unit, much in (("kB", 1e3), ("MB", 1e6)):
        if count < 1000 * much:
            return f"{count / much:.1f} {unit}"
    return f"{count / 1e9:.1f} GB"


def _described(block: Mapping[str, Any], path: str | None = None) -> str:
    kind = str(block.get("type"))
    match kind:
        case "image" | "audio":
            facts = [block.get("mimeType"), _encoded_size(block.get("data"))]
        case "resource":
            resource = block.get("resource")
            held: Mapping[str, Any] = resource if isinstance(resource, Mapping) else {}
            text = held.get("text")
            amount = (
                format_size(len(text.encode("utf-8", "replace")))
                if isinstance(text, str)
                else _encoded_size(held.get("blob"))
            )
            facts = [held.get("uri"), held.get("mimeType"), amount]
        case "resource_link":
            count = block.get("size")
            amount = format_size(count) if isinstance(count, int) else None
            facts = [block.get("uri"), block.get("name"), block.get("mimeType"), amount]
            kind = "link"
        case _:
            facts = [f"unknown content type, {format_size(len(pretty(block)))} of JSON"]
    facts.append(path and f"saved as {path}")
    return f"[{kind}: {', '.join(str(fact) for fact in facts if fact)}]"


def _encoded_size(data: Any) -> str | None:
    if not isinstance(data, str):
        return None
    return format_size(len(data) * 3 // 4 - data[-2:].count("="))
