"""Recording options of a gateway or proxy."""

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
    """Return the path of the tape to record from the start; None if no recording is requested.

    A name given with `--record` takes precedence over the gateway file. The time is appended to
    names from the file and to the default `name`.
    """
    if options.record:
        return tape_path(options.record)
    if options.record is None and said is False:
        return None
    return new_tape_path(said if isinstance(said, str) else name)


def require_tape(name: str | None) -> None:
    """Raise `UsageError` if the argument of `--record` is probably the gateway file.

    `--record` takes an optional value, so a FILE directly after it would be parsed as the tape's
    name.
    """
    endings = (".toml", ".yaml", ".yml", ".json")
    if name and name.endswith(endings) and not name.endswith(".tape.json"):
        raise UsageError(
            f"Invalid tape name {name}",
            hint="put FILE before --record, or pass a name for the tape",
        )


def tape_control_for(about: dict[str, Any], secrets: Iterable[str]) -> TapeControl:
    """Return the object that starts and stops recordings."""
    return TapeControl(tapes_folder(), secrets=secrets, about=about)


@contextmanager
def record_while_running(
    tapes: TapeControl | None, place: Path | None, options: Namespace
) -> Iterator[None]:
    """Record if requested, and print the tape's path at the end."""
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
            hint = "choose another name, or replace the tape with --overwrite" if there else ""
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
    """Yield a function that returns the recording interceptors for a server."""
    with ExitStack() as stack:

        def interceptors(entry: MCPServerEntry) -> list[Interceptor]:
            if options.record is None:
                return []
            tapes = tape_control_for(about_entry(entry), secrets_of(entry))
            stack.enter_context(record_while_running(tapes, tape_place(options, "proxy"), options))
            assert tapes.last is not None
            return [Recorder(tapes.last)]

        yield interceptors
