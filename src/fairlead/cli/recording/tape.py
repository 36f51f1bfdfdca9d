"""`fairlead tape`: lists, shows, trims and deletes recorded conversations."""

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
from ...recording.tape.trim import EntrySelection, select_lines, trim
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

# For each command: its description, and the module that contains `run_NAME`.
_COMMANDS = {
    "list": ("list tapes", "recording.tape"),
    "show": ("show the messages on a tape, one line each", "recording.tape"),
    "export": ("convert a tape to an HTTP archive (HAR) or a pytest test", "recording.export"),
    "diff": ("show differences between two tapes, except for times and ids", "recording.tape_diff"),
    "trim": ("keep only selected messages of a tape", "recording.tape"),
    "delete": ("delete tapes", "recording.tape"),
}


_ABOUT = """\
Manage conversations that were recorded with `fairlead record` or a gateway. A tape is
given by its name or path."""


def run(argv: Sequence[str]) -> int:
    with reading():
        return run_one("tape", _COMMANDS, _ABOUT, argv)


# Options that select messages.
_CHOOSING = (
    option("--from", dest="first", type=int, default=0, metavar="N", help="start at message N"),
    option("--to", dest="last", type=int, metavar="N", help="end at message N"),
    option("--session", metavar="NAME", help="only this session (s1, s2, ...)"),
    option("--method", metavar="PATTERN", help="only these methods (`tools/*`) and responses"),
)


def run_list(argv: Sequence[str]) -> int:
    options = Parser(
        "tape list",
        "List the tapes in the default folder, or in another folder.",
        option("folder", metavar="FOLDER", nargs="?", help="the folder to list"),
        option("--tag", metavar="TAG", help="only tapes with this tag"),
        JSON,
        examples="  fairlead tape list\n  fairlead tape list tests/tapes --json",
    ).parse_args(argv)
    folder = Path(options.folder) if options.folder else tapes_folder()
    if options.folder and not folder.is_dir():
        raise CommandError(f"Folder not found: {visible(str(folder))}")
    found = []
    for place in tapes_in(folder):
        try:
            reader = TapeReader(place)
            found.append(_about(reader))
        except (ConfigError, OSError) as exc:
            print_message("skipped", visible(str(exc)))
        else:
            for trouble in reader.troubles:
                print_message("note", visible(f"{found[-1]['name']}: {trouble}"), "33")
    if options.tag:
        found = [tape for tape in found if options.tag in tape["tags"]]
    if as_json(options, found):
        return 0
    if not found:
        write(f"no tapes in {visible(str(folder))}")
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
        "Show the messages on a tape, one line each or in full.",
        TAPE,
        *_CHOOSING,
        option("--limit", type=_count, metavar="N", help="show at most N messages"),
        flag("--full", help="also show the content of the messages"),
        flag("--json", help="print each entry as a line of JSON"),
        examples="  fairlead tape show monday\n"
        "  fairlead tape show monday --method 'tools/*' --full\n"
        "  fairlead tape show monday --from 5000 --limit 20\n"
        "  fairlead tape show monday --json | jq .message",
    ).parse_args(argv)
    reader = open_tape(options.tape)
    with nullcontext() if sys.stdout.isatty() else progress(reader):
        selected = select_lines(reader.lines(), _selected(options))
        for _, entry in islice(selected, options.limit):
            if options.json:
                write(msgspec.json.encode(entry).decode())
                continue
            write(visible(_line(entry)))
            if options.full:
                write(safe(_whole(entry)))
    print_integrity_warnings(reader)
    return 0


def _selected(options: Any, *, opening: bool = False) -> EntrySelection:
    """Return the selection described by the options;
    `opening` adds the first messages of sessions.
    """
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
        raise ArgumentTypeError(f"{text!r} is not a number of messages")
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
    stopped = "  [not forwarded]" if entry.stopped else ""
    label = (entry.session or "").ljust(3)
    head = f"{entry.seq:>5} {entry.at:>10.3f} {label} {arrow}"
    return f"{head} {summary_of(message)}{number}{did}{stopped}"


def run_trim(argv: Sequence[str]) -> int:
    options = Parser(
        "tape trim",
        "Keep the selected messages of a tape and their responses. The first messages of each\n"
        "session are kept, so that the tape can be replayed.",
        TAPE,
        *_CHOOSING,
        option("-o", "--output", metavar="TAPE", help="the new tape (default: TAPE itself)"),
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
        write(safe(f"{count} messages on {target}.tape.jsonl"))
    return 0


def run_delete(argv: Sequence[str]) -> int:
    options = Parser(
        "tape delete",
        "Delete tapes with all their files.",
        option("tapes", metavar="TAPE", nargs="+", help="names or paths of tapes"),
        JSON,
        examples="  fairlead tape delete monday tuesday",
    ).parse_args(argv)
    deleted = []
    for name in options.tapes:
        reader = open_tape(name, exactly=True)
        if reader.info.status == "recording":
            raise CommandError(f"Cannot delete {name}: it is being recorded")
        for file in files_of(reader.base) or reader.parts:
            try:
                file.unlink()
            except OSError as exc:
                raise CommandError(f"Cannot delete {file}: {exc.strerror}") from exc
            deleted.append(str(file))
    for path in () if as_json(options, deleted) else deleted:
        write(safe(f"deleted {path}"))
    return 0
