"""`fairlead watch`: the conversation as it goes on, one line for each exchange."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ...errors import FairleadError
from ...observe.safe_display import escape_json
from ...recording.journal.journal_record import JournalRecord
from ...recording.journal.watch_socket import (
    RecordsLost,
    WatchHello,
    find_journals,
    receive_records,
    watch_folder,
)
from ..framework.admin_client import ADMIN_TOKEN, ask_admin
from ..framework.command_errors import CommandError, print_message
from ..framework.output import as_json, safe, visible
from ..framework.parser import Parser, flag, option
from .watch_lines import RecordPrinter

__all__ = ["run"]

LOOK_EVERY = 0.25  # seconds between looks for somebody to watch
POLL = 20.0  # seconds that a gateway may keep us waiting

_HOW = (
    "start a server with `fairlead tap -- COMMAND`, `fairlead up --journal`, or a gateway whose "
    "file has `journal = true`"
)


def run(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    try:
        if options.list:
            return _list(options)
        if options.name is not None and "://" in options.name:
            return _show(_of_gateway(options), options)
        return _show(_of_socket(options), options)
    except FairleadError as exc:
        raise CommandError(safe(str(exc))) from exc
    except BrokenPipeError:
        raise  # nobody reads what we write
    except OSError as exc:
        raise CommandError(f"Nothing can be watched: {exc}") from exc


def _list(options: Namespace) -> int:
    found = [hello for _, hello in find_journals()]
    if as_json(options, msgspec.to_builtins(found)):
        return 0
    for hello in found:
        print(f"{visible(hello.hello)}  {hello.kind} {hello.pid}  {visible(hello.about)}")
    if not found:
        print_message("note", f"there is nothing to watch: {_HOW}")
    return 0


def _show(
    events: Iterator[JournalRecord | RecordsLost | WatchHello | None], options: Namespace
) -> int:
    lines = RecordPrinter(sys.stdout)
    for event in events:
        if isinstance(event, JournalRecord):
            if options.id is not None and event.id != options.id:
                continue
            if options.json:
                print(escape_json(msgspec.json.encode(event).decode()))
            else:
                lines.show(event, details=options.details or options.id is not None)
            if options.id is not None:
                return 0
        elif isinstance(event, RecordsLost):
            print_message("warning", f"{event.lost} exchanges came too fast to be shown")
        elif isinstance(event, WatchHello) and not options.json:
            print_message("watching", f"{visible(event.hello)} ({event.kind} {event.pid})", "32")
        elif event is None:
            if options.id is not None:
                raise CommandError(f"There is no exchange {options.id} any more, or not yet")
            if options.once:
                return 0
        sys.stdout.flush()
    return 0


# Where it comes from


def _of_socket(options: Namespace) -> Iterator[JournalRecord | RecordsLost | WatchHello | None]:
    path = _path(options)
    try:
        yield from receive_records(path)
    except OSError as exc:
        raise CommandError(f"{path.name} cannot be watched: {exc.strerror or exc}") from exc
    if not options.json:
        print_message("ended", f"{visible(options.name or path.stem)} is not there any more")


def _path(options: Namespace) -> Path:
    waits = False
    while True:
        found = [
            (path, hello)
            for path, hello in find_journals()
            if options.name in (None, hello.hello, str(hello.pid))
        ]
        if found:
            if len(found) > 1:
                others = len(found) - 1
                print_message("note", f"{others} more like it; `fairlead watch --list` shows them")
            return found[0][0]
        whom = "a tap or a gateway" if options.name is None else f"{options.name!r}"
        if options.once or options.id is not None:
            raise CommandError(f"Nobody is there to watch: {whom}", hint=_HOW)
        if not waits:
            print_message("waiting", f"for {whom}, in {watch_folder(make=False)}; {_HOW}")
            waits = True
        time.sleep(LOOK_EVERY)


def _of_gateway(options: Namespace) -> Iterator[JournalRecord | None]:
    """Asks again and again. What is pending is asked for until it has its outcome."""
    options.url = options.name
    shown: dict[int, object] = {}
    after, wait = 0, 0.0
    while True:
        answer = ask_admin(options, "GET", f"/admin/journal?after={after}&wait={wait:g}", wait=wait)
        # Raw parts went through a decoder on the way, and are encoded again.
        records = msgspec.json.decode(
            msgspec.json.encode(answer["records"]), type=list[JournalRecord]
        )
        for record in records:
            now = record.state, record.flags
            if shown.get(record.id) != now:
                shown[record.id] = now
                yield record
        yield None
        pending = [record.id for record in records if record.state == "pending"]
        if pending:
            after, wait = min(pending) - 1, 0.0
            time.sleep(LOOK_EVERY)
        else:
            after, wait = max([after, *(record.id for record in records)]), POLL
        shown = {number: state for number, state in shown.items() if number > after}


def _parser() -> Parser:
    return Parser(
        "watch",
        "Show what a server and its client say, while they do: one line for each exchange. Waits\n"
        "for somebody to watch, if nobody is there. Secrets are not shown.",
        option(
            "name",
            metavar="NAME",
            nargs="?",
            help="of a tap or a gateway on this machine (default: the newest), its process id, or "
            "the URL of a gateway that has an admin_token",
        ),
        flag("--details", help="show whole messages, too"),
        option(
            "--id", type=int, metavar="N", help="show all of one exchange: the number in its line"
        ),
        flag("--once", help="show what is remembered, and do not wait for more"),
        flag("--list", help="show who could be watched"),
        flag("--json", help="print JSON, one object a line"),
        ADMIN_TOKEN,
        usage="[options] [NAME | URL]",
        examples="  fairlead watch\n"
        "  fairlead watch notes --details\n"
        "  fairlead watch notes --id 12\n"
        "  fairlead watch http://127.0.0.1:8765 --json",
    )
