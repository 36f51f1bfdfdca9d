"""`fairlead watch`: shows the messages of a tap or gateway live, one line for each exchange."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
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
    waiting_for_journal,
    watch_folder,
)
from ..framework.admin_client import ADMIN_TOKEN, ask_admin
from ..framework.command_errors import CommandError, print_message
from ..framework.output import as_json, safe, visible
from ..framework.parser import Parser, flag, option
from ..framework.suggested_commands import suggest
from .watch_lines import RecordPrinter

__all__ = ["run"]

LOOK_EVERY = 0.25  # seconds between searches for a journal
POLL = 20.0  # seconds of a long poll to a gateway


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
        raise  # the program that reads the output has exited
    except OSError as exc:
        raise CommandError(f"Cannot watch: {exc}") from exc


def _list(options: Namespace) -> int:
    found = [hello for _, hello in find_journals()]
    if as_json(options, msgspec.to_builtins(found)):
        return 0
    for hello in found:
        print(f"{visible(hello.hello)}  {hello.kind} {hello.pid}  {visible(hello.about)}")
    if not found:
        print_message("note", f"no tap or gateway found; {_how()}")
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
            print_message("warning", f"{event.lost} exchanges arrived too fast and are not shown")
        elif isinstance(event, WatchHello) and not options.json:
            print_message("watching", f"{visible(event.hello)} ({event.kind} {event.pid})", "32")
        elif event is None:
            if options.id is not None:
                raise CommandError(f"Exchange {options.id} is not in the journal")
            if options.once:
                return 0
        sys.stdout.flush()
    return 0


def _how() -> str:
    return (
        f"start {suggest('tap', '--', 'COMMAND')}, {suggest('up', '--journal')}, or a gateway with "
        "`journal = true` in its file"
    )


# Sources of records


def _of_socket(options: Namespace) -> Iterator[JournalRecord | RecordsLost | WatchHello | None]:
    with ExitStack() as waiting:
        if not options.once and options.id is None:
            waiting.enter_context(waiting_for_journal(options.name or ""))
        path = _path(options)
        try:
            for record in receive_records(path):
                waiting.close()  # connected
                yield record
        except OSError as exc:
            raise CommandError(f"Cannot watch {path.name}: {exc.strerror or exc}") from exc
    if not options.json:
        print_message("ended", f"{visible(options.name or path.stem)} has exited")


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
                others, command = len(found) - 1, suggest("watch", "--list")
                print_message("note", f"{others} more match; {command} shows them")
            return found[0][0]
        whom = "a tap or a gateway" if options.name is None else f"{options.name!r}"
        if options.once or options.id is not None:
            raise CommandError(f"No journal found for {whom}", hint=_how())
        if not waits:
            print_message("waiting", f"for {whom}, in {watch_folder(make=False)}; {_how()}")
            waits = True
        time.sleep(LOOK_EVERY)


def _of_gateway(options: Namespace) -> Iterator[JournalRecord | None]:
    """Poll a gateway's journal; pending exchanges are requested again until they are complete."""
    options.url = options.name
    shown: dict[int, object] = {}
    after, wait = 0, 0.0
    while True:
        answer = ask_admin(options, "GET", f"/admin/journal?after={after}&wait={wait:g}", wait=wait)
        # `ask_admin` has decoded the whole response, but the records have raw JSON fields.
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
        "Show the messages of a tap or a gateway live, one line for each exchange. Waits until a\n"
        "tap or a gateway starts. Secrets are not shown.",
        option(
            "name",
            metavar="NAME",
            nargs="?",
            help="name or process id of a tap or gateway on this machine (default: the newest), or "
            "the URL of a gateway with an admin_token",
        ),
        flag("--details", help="also show complete messages"),
        option("--id", type=int, metavar="N", help="show one exchange completely, by its number"),
        flag("--once", help="show past exchanges and exit"),
        flag("--list", help="list the taps and gateways"),
        flag("--json", help="print JSON, one object per line"),
        ADMIN_TOKEN,
        usage="[options] [NAME | URL]",
        examples="  fairlead watch\n"
        "  fairlead watch notes --details\n"
        "  fairlead watch notes --id 12\n"
        "  fairlead watch http://127.0.0.1:8765 --json",
    )
