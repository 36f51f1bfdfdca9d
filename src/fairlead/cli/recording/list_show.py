"""`fairlead tape list` and `fairlead tape show`."""

import json
import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from ...errors import ConfigError
from ...protocol.envelope import Direction
from ...recording.tape import TapeEntry, TapeReader, decode_entry
from ...recording.tape.format import command_of
from ...recording.tape.message_summary import message_heading, summary_of
from ...recording.tape.tape_files import tapes_in
from ...recording.tape.trim import EntrySelection, select_entries
from ..framework.errors import CommandError, print_message
from ..framework.output import as_json, columns, format_size, pretty, safe, visible, write
from ..framework.parser import JSON, TAPE, Parser, flag, option
from .places import open_tape, print_integrity_warnings, progress, tapes_folder

__all__ = ["CHOOSING", "run_list", "run_show", "selected_entries"]

# Which messages are meant.
CHOOSING = (
    option("--from", dest="first", type=int, default=0, metavar="N", help="from this number on"),
    option("--to", dest="last", type=int, metavar="N", help="up to this number"),
    option("--session", metavar="NAME", help="only of this session (s1, s2, ...)"),
    option("--method", metavar="PATTERN", help="only these (`tools/*`), with their answers"),
)


def run_list(argv: Sequence[str]) -> int:
    options = Parser(
        "tape list",
        "List the tapes in our own folder, or in another one.",
        option("folder", metavar="FOLDER", nargs="?", help="where to look"),
        option("--tag", metavar="TAG", help="only those that have it"),
        JSON,
        examples="  fairlead tape list\n  fairlead tape list tests/tapes --json",
    ).parse_args(argv)
    folder = Path(options.folder) if options.folder else tapes_folder()
    if options.folder and not folder.is_dir():
        raise CommandError(f"There is no folder {visible(str(folder))}")
    found = []
    for place in tapes_in(folder):
        try:
            reader = TapeReader(place)
            found.append(_about(reader))
        except (ConfigError, OSError) as exc:
            print_message("left out", visible(str(exc)))
        else:
            for trouble in reader.troubles:
                print_message("note", visible(f"{found[-1]['name']}: {trouble}"), "33")
    if options.tag:
        found = [tape for tape in found if options.tag in tape["tags"]]
    if as_json(options, found):
        return 0
    if not found:
        write(f"There are no tapes in {visible(str(folder))}")
    rows = []
    for tape in found:
        began = datetime.fromtimestamp(tape["began"]).strftime("%Y-%m-%d %H:%M")
        count = "" if tape["entries"] is None else f"{tape['entries']} messages"
        tags = " ".join(f"#{tag}" for tag in tape["tags"])
        facts = [
            tape["status"],
            began,
            count,
            format_size(tape["size"]),
            tape["target"],
            tags,
        ]
        rows.append([tape["name"], "  ".join(filter(None, facts))])
    for line in columns(rows):
        write(line)
    return 0


def _about(reader: TapeReader) -> dict[str, Any]:
    info = reader.info
    target = " ".join(command_of(info)) or info.about.get("url", "")
    return {
        "name": Path(reader.base).name,
        "path": str(reader.parts[0]),
        "status": info.status,
        "began": info.began,
        "entries": info.entries if info.status == "complete" else None,
        "lost": info.lost,
        "size": reader.size,
        "tags": info.tags,
        "target": str(target),
    }


def run_show(argv: Sequence[str]) -> int:
    options = Parser(
        "tape show",
        "Show what is on a tape: a line for each message, or all of it.",
        TAPE,
        *CHOOSING,
        option("--limit", type=_count, metavar="N", help="at most so many; the rest is not read"),
        flag("--full", help="show the messages themselves too"),
        flag("--json", help="print each entry as a line of JSON, for programs"),
        examples="  fairlead tape show monday\n"
        "  fairlead tape show monday --method 'tools/*' --full\n"
        "  fairlead tape show monday --from 5000 --limit 20\n"
        "  fairlead tape show monday --json | jq .message",
    ).parse_args(argv)
    reader = open_tape(options.tape)
    with nullcontext() if sys.stdout.isatty() else progress(reader):
        for entry in islice(select_entries(reader, selected_entries(options)), options.limit):
            if options.json:
                write(msgspec.json.encode(entry).decode())
                continue
            write(visible(_line(entry)))
            if options.full:
                write(safe(_whole(entry)))
    print_integrity_warnings(reader)
    return 0


def selected_entries(options: Any, *, opening: bool = False) -> EntrySelection:
    """The same for the tape; with `opening`, the first words of sessions as well."""
    pattern = options.method
    return EntrySelection(
        first=options.first,
        last=options.last,
        session=options.session,
        method=None if pattern is None else lambda method: fnmatchcase(method, pattern),
        opening=opening,
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ArgumentTypeError(f"{text!r} is no number of messages")
    return int(text)


def _whole(entry: TapeEntry) -> str:
    try:
        return pretty(decode_entry(entry))
    except RecursionError:
        return bytes(entry.message).decode()


def _line(entry: TapeEntry) -> str:
    message = message_heading(entry)
    arrow = "→" if entry.dir is Direction.CLIENT_TO_SERVER else "←"
    number = "" if message.id is msgspec.UNSET else f" #{json.dumps(message.id)}"
    did = "" if not entry.did else f"  [{', '.join(entry.did)}]"
    stopped = "  [not passed on]" if entry.stopped else ""
    label = (entry.session or "").ljust(3)
    head = f"{entry.seq:>5} {entry.at:>10.3f} {label} {arrow}"
    return f"{head} {summary_of(message)}{number}{did}{stopped}"
