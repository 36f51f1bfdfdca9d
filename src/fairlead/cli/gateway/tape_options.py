"""The tape of a gateway or a proxy that is run as a program."""

from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...gateway.operations.tape_control import Taping
from ...recording.tape.format import LINES
from ..framework.errors import USAGE, Failed, say
from ..framework.output import safe, visible
from ..recording.places import new_place, place_of, tapes_folder

__all__ = ["recorded", "require_tape", "tape_place", "taping"]


def tape_place(options: Namespace, name: str, said: str | bool = False) -> Path | None:
    """Where to record to, from the start on: as the options say, else as a file says.

    A name in a file, and `name` where there is none, get the time behind them.
    """
    if options.record:
        return place_of(options.record)
    if options.record is None and said is False:
        return None
    return new_place(said if isinstance(said, str) else name)


def require_tape(name: str | None) -> None:
    """Raises `Failed` for what is rather the file of a gateway: `--record` took it for a name."""
    endings = (".toml", ".yaml", ".yml", ".json")
    if name and name.endswith(endings) and not name.endswith(".tape.json"):
        raise Failed(
            f"{name} is no name for a tape",
            hint="FILE goes before --record, or give the tape a name",
            code=USAGE,
        )


def taping(about: dict[str, Any], secrets: Iterable[str]) -> Taping:
    """What records, when it is started."""
    return Taping(tapes_folder(), secrets=secrets, about=about)


@contextmanager
def recorded(tapes: Taping | None, place: Path | None, options: Namespace) -> Iterator[None]:
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
            raise Failed(safe(str(exc)), hint=hint) from exc
        say("recording", visible(str(started.path)))
    try:
        yield
    finally:
        last = tapes.last
        tapes.stop()
        if last is not None:
            lost = f", {last.info.lost} were lost" if last.info.lost else ""
            say("recorded", safe(f"{last.info.entries} messages on {last.path}{lost}"))
