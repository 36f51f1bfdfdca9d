"""`fairlead tape ...`: conversations that were recorded; listed, shown, cut and deleted here."""

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
from ...recording.tape.tape_files import files_of, tapes_in
from ...recording.tape.trim import EntrySelection, select_entries, trim
from ..command_group import run_one
from ..framework.command_errors import CommandError, print_message
from ..framework.output import as_json, columns, format_size, pretty, safe, visible, write
from ..framework.parser import JSON, TAPE, Parser, flag, option
from .places import (
    FORCE,
    already_exists,
    open_tape,
    print_integrity_warnings,
    progress,
    reading,
    tape_path,
    tapes_folder,
)

__all__ = ["run", "run_delete", "run_list", "run_show", "run_trim"]

# What it does, and the module whose `run_...` does it.
_COMMANDS = {
    "list": ("list them", "recording.tape"),
    "show": ("show what is on one, a line for each message", "recording.tape"),
    "export": ("make an HTTP archive (HAR) or a test for pytest of one", "recording.export"),
    "diff": ("show where two of them differ, but for time and ids", "recording.tape_diff"),
    "trim": ("keep a part of one", "recording.tape"),
    "delete": ("delete them", "recording.tape"),
}


_ABOUT = """\
Look at conversations that were recorded, with `fairlead record` or a gateway. A tape
is named, or given by its path."""


def run(argv: Sequence[str]) -> int:
    with reading():
        return run_one("tape", _COMMANDS, _ABOUT, argv)


# Which messages are meant.
_CHOOSING = (
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
        *_CHOOSING,
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
        for entry in islice(select_entries(reader, _selected(options)), options.limit):
            if options.json:
                write(msgspec.json.encode(entry).decode())
                continue
            write(visible(_line(entry)))
            if options.full:
                write(safe(_whole(entry)))
    print_integrity_warnings(reader)
    return 0


def _selected(options: Any, *, opening: bool = False) -> EntrySelection:
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


def run_trim(argv: Sequence[str]) -> int:
    options = Parser(
        "tape trim",
        "Keep a part of a tape: some of its messages, with their answers. The first words of a\n"
        "session stay, so that it can be played.",
        TAPE,
        *_CHOOSING,
        option("-o", "--output", metavar="TAPE", help="another one (default: itself)"),
        FORCE,
        JSON,
        usage="TAPE [options] [-o TAPE [--force]]",
        examples="  fairlead tape trim monday --from 120 --to 300 -o short\n"
        "  fairlead tape trim monday --session s2",
    ).parse_args(argv)
    reader = open_tape(options.tape, exactly=options.output is None)
    target = reader.base if options.output is None else tape_path(options.output)
    overwrite = options.force or options.output is None
    try:
        with progress(reader):
            count = trim(reader, _selected(options, opening=True), target, overwrite=overwrite)
    except FileExistsError as exc:
        raise already_exists(exc) from exc
    except (ConfigError, OSError) as exc:
        raise CommandError(safe(str(exc))) from exc
    print_integrity_warnings(reader)
    if not as_json(options, {"path": f"{target}.tape.jsonl", "entries": count}):
        write(safe(f"{count} messages are left on {target}.tape.jsonl"))
    return 0


def run_delete(argv: Sequence[str]) -> int:
    options = Parser(
        "tape delete",
        "Delete tapes, with everything that belongs to them.",
        option("tapes", metavar="TAPE", nargs="+", help="their names, or paths"),
        JSON,
        examples="  fairlead tape delete monday tuesday",
    ).parse_args(argv)
    deleted = []
    for name in options.tapes:
        reader = open_tape(name, exactly=True)
        if reader.info.status == "recording":
            raise CommandError(f"{name} is being recorded")
        for file in files_of(reader.base) or reader.parts:
            try:
                file.unlink()
            except OSError as exc:
                raise CommandError(f"{file} cannot be deleted: {exc.strerror}") from exc
            deleted.append(str(file))
    for path in () if as_json(options, deleted) else deleted:
        write(safe(f"deleted {path}"))
    return 0
