"""`fairlead tape diff`: shows differences between two tapes."""

import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec

from ...recording.compare.compare_tapes import TapeDifference, iter_differences
from ...recording.compare.json_diff import read_path
from ...recording.tape.message_summary import summary
from ..framework.command_errors import FAILED, UsageError
from ..framework.output import pretty, visible, write
from ..framework.parser import IGNORE, JSON, Parser, option
from .places import open_tape, print_integrity_warnings, progress

__all__ = ["run_diff"]


def run_diff(argv: Sequence[str]) -> int:
    options = Parser(
        "tape diff",
        "Show the differences between two tapes, except for times, ids and tokens. The exit code\n"
        "is 1 if there are any.",
        option("first", metavar="TAPE"),
        option("second", metavar="TAPE"),
        IGNORE,
        JSON,
        examples="  fairlead tape diff monday tuesday --ignore 'result.content.*.text'",
    ).parse_args(argv)
    try:
        ignore = [read_path(text) for text in options.ignore]
    except ValueError as exc:
        raise UsageError(str(exc)) from exc
    first, second = open_tape(options.first), open_tape(options.second)
    with progress(first, second):
        found = iter_differences(first, second, ignore)
        change = next(found, None)
    rest = () if change is None else chain([change], found)
    count = _show_json(rest) if options.json else sum(map(_show, rest))
    print_integrity_warnings(first, second)
    if not count and not options.json:
        write("no differences, except for times and ids")
    return FAILED if count else 0


def _show_json(found: Iterable[TapeDifference]) -> int:
    """Print a JSON list item by item, because it may be long."""
    count = 0
    for count, change in enumerate(found, 1):
        text = textwrap.indent(pretty(_plain(change)), "  ")
        sys.stdout.write(f"{'[' if count == 1 else ','}\n{text}")
    write("\n]" if count else "[]")
    return count


def _show(change: TapeDifference) -> int:
    if change.first is None or change.second is None:
        sign, entry = ("+", change.second) if change.first is None else ("-", change.first)
        assert entry is not None
        write(visible(f"{sign} {entry.seq} {summary(entry)}"))
        return 1
    write(visible(f"~ {change.first.seq} {summary(change.first)}"))
    for one in change.differences:
        write(visible(f"    {one}"))
    return 1


def _plain(change: TapeDifference) -> dict[str, Any]:
    return {
        "first": change.first and change.first.seq,
        "second": change.second and change.second.seq,
        "what": summary(change.first or change.second),  # type: ignore[arg-type]
        "differences": msgspec.to_builtins(change.differences),
    }
