"""The tape of a gateway or a proxy that is run as a program."""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ...client.server_entry import MCPServerEntry
from ...errors import ConfigError
from ...gateway.operations.tape_control import TapeControl
from ...interceptor import Interceptor
from ...recording.tape.format import LINES, about_entry
from ...recording.tape.known_secrets import secrets_of
from ...recording.tape.tape_interceptor import Recorder
from ..framework.command_errors import CommandError, UsageError, print_message
from ..framework.output import safe, visible
from ..recording.places import new_tape_path, tape_path, tapes_folder

__all__ = ["record_while_running", "recording", "require_tape", "tape_control_for", "tape_place"]


def tape_place(options: Namespace, name: str, said: str | bool = False) -> Path | None:
    """Where to record to, from the start on: as the options say, else as a file says.

    A name in a file, and `name` where there is none, get the time behind them.
    """
    if options.record:
        return tape_path(options.record)
    if options.record is None and said is False:
        return None
    return new_tape_path(said if isinstance(said, str) else name)


def require_tape(name: str | None) -> None:
    """Check that a name is not the file of a gateway, which `--record` took for a name.

    Raises:
        CommandError: It looks like such a file.
    """
    endings = (".toml", ".yaml", ".yml", ".json")
    if name and name.endswith(endings) and not name.endswith(".tape.json"):
        raise UsageError(
            f"{name} is no name for a tape",
            hint="FILE goes before --record, or give the tape a name",
        )


def tape_control_for(about: dict[str, Any], secrets: Iterable[str]) -> TapeControl:
    """What records, when it is started."""
    return TapeControl(tapes_folder(), secrets=secrets, about=about)


@contextmanager
def record_while_running(
    tapes: TapeControl | None, place: Path | None, options: Namespace
) -> Iterator[None]:
    """Record, if that is wanted, and say at the end what came of it."""
    if tapes is None:
        yield
        return
    if place is not None:
        try:
            started = tapes.start(
                place=place,
                tags=options.tag,
                overwrite=options.overwrite,
                redact=not options.keep_secrets,
            )
        except ConfigError as exc:
            there = place.with_name(f"{place.name}{LINES}").exists()
            hint = "take another name, or write it anew with --overwrite" if there else ""
            raise CommandError(safe(str(exc)), hint=hint) from exc
        print_message("recording", visible(str(started.path)))
    try:
        yield
    finally:
        last = tapes.last
        tapes.stop()
        if last is not None:
            lost = f", {last.info.lost} were lost" if last.info.lost else ""
            print_message("recorded", safe(f"{last.info.entries} messages on {last.path}{lost}"))


@contextmanager
def recording(options: Namespace) -> Iterator[Callable[[MCPServerEntry], list[Interceptor]]]:
    """What records, for the server that was found; the tape is closed at the end."""
    with ExitStack() as stack:

        def interceptors(entry: MCPServerEntry) -> list[Interceptor]:
            if options.record is None:
                return []
            tapes = tape_control_for(about_entry(entry), secrets_of(entry))
            stack.enter_context(record_while_running(tapes, tape_place(options, "proxy"), options))
            assert tapes.last is not None
            return [Recorder(tapes.last)]

        yield interceptors
