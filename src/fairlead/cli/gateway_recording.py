"""The tape of a gateway that is run as a program."""

from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from ..errors import ConfigError
from ..gateway.tape.format import LINES
from ..gateway.taping import Taping
from .failed import USAGE, Failed, say
from .output import safe, visible
from .tape_places import new_place, place_of, tapes_folder

__all__ = ["Record", "recorded", "require_tape", "taping"]


class Record(Struct, frozen=True, kw_only=True):
    """Where to record to, from the start on."""

    place: Path
    tags: list[str]
    overwrite: bool
    redact: bool

    @classmethod
    def of(cls, options: Namespace, name: str, said: str | bool = False) -> "Record | None":
        """What the options say, else what a file says: a name there gets the time behind it."""
        if options.record is None and said is False:
            return None
        if options.record:
            place = place_of(options.record)
        else:
            place = new_place(said if isinstance(said, str) else name)
        return cls(
            place=place,
            tags=options.tag,
            overwrite=options.overwrite,
            redact=not options.keep_secrets,
        )


def require_tape(name: str | None) -> None:
    """Raises `Failed` for what is rather the file of a gateway: `--record` took it for a name."""
    endings = (".toml", ".yaml", ".yml", ".json")
    if name and name.endswith(endings) and not name.endswith(".tape.json"):
        raise Failed(
            f"{name} is no name for a tape",
            hint="FILE goes before --record, or give the tape a name",
            code=USAGE,
        )


def taping(
    name: str, record: Record | None, *, admin: bool, secrets: Iterable[str | None] = ()
) -> Taping | None:
    """What records; None if nobody wants it to, or could."""
    if record is None and not admin:
        return None
    known = [secret for secret in secrets if secret is not None]
    return Taping(tapes_folder(), secrets=known, about={"gateway": name})


@contextmanager
def recorded(tapes: Taping | None, record: Record | None) -> Iterator[None]:
    """Record, if that is wanted, and say at the end what came of it."""
    if tapes is None:
        yield
        return
    if record is not None:
        try:
            started = tapes.start(
                place=record.place,
                tags=record.tags,
                overwrite=record.overwrite,
                redact=record.redact,
            )
        except ConfigError as exc:
            there = record.place.with_name(f"{record.place.name}{LINES}").exists()
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
