"""A shorter tape out of a longer one."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from ...errors import ConfigError
from .format import ABOUT, LINES, Entry, base_of
from .heading import heading_of
from .parts import parts_of
from .reader import TapeReader

__all__ = ["chosen", "trim"]

# Without its opening a conversation cannot be played.
_OPENING: Final = ("initialize", "notifications/initialized", "server/discover")


def chosen(
    entries: Iterable[Entry],
    *,
    first: int = 0,
    last: int | None = None,
    session: str | None = None,
    method: Callable[[str], bool] | None = None,
    opening: bool = False,
) -> Iterator[Entry]:
    """Entries by number, session and method; an answer goes with its request.

    With `opening`, the first words of a session are kept whatever their numbers are.
    """
    kept: set[tuple[str | None, str, object]] = set()  # requests whose answers are wanted
    for entry in entries:
        if last is not None and entry.seq > last and not kept:
            return  # the rest may be long
        if session is not None and entry.session != session:
            continue
        message = heading_of(entry)
        if message.method is not None:
            named = str(message.method)
            is_opening = opening and named in _OPENING
            inside = first <= entry.seq and (last is None or entry.seq <= last)
            if not is_opening and (not inside or (method is not None and not method(named))):
                continue
            if message.is_request:
                kept.add((entry.session, entry.dir.value, message.name))
            yield entry
            continue
        asked = (entry.session, entry.dir.reverse().value, message.name)
        if asked in kept:
            kept.discard(asked)
            yield entry


def trim(reader: TapeReader, entries: Iterable[Entry], target: str | os.PathLike[str]) -> int:
    """Write entries of a tape to another one, or over it; how many they were.

    Raises:
        ConfigError: it is being recorded.
        OSError: it cannot be written.
    """
    if reader.info.status == "recording":
        raise ConfigError(f"{reader.base} is being recorded: trim it when that has ended")
    base = base_of(target)
    place = Path(f"{base}{LINES}")
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = place.with_name(f".{place.name}.{os.getpid()}")
    count = 0
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            for entry in entries:
                stream.write(msgspec.json.encode(entry) + b"\n")
                count += 1
        for old in parts_of(base)[1:]:
            old.unlink()
        fresh.replace(place)
    finally:
        fresh.unlink(missing_ok=True)
    info = msgspec.structs.replace(
        reader.info, name=Path(base).name, entries=count, parts=1, status="complete"
    )
    about = Path(f"{base}{ABOUT}")
    about.touch(0o600)
    about.write_bytes(msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n")
    return count
