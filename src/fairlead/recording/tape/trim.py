"""Selection of a tape's entries, and copies of a tape with the selected entries."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct, field

from ...errors import ConfigError
from .format import ABOUT, LINES, TapeEntry, base_of
from .message_summary import message_heading
from .output_file import check_not_existing, open_output
from .tape_files import parts_of
from .tape_reader import LineLocation, TapeReader

__all__ = ["EntrySelection", "select_lines", "trim"]

# The opening messages of a conversation, without which it cannot be replayed.
_OPENING: Final = ("initialize", "notifications/initialized", "server/discover")


_Asked: TypeAlias = tuple[str | None, str, object]  # session, direction, id


class EntrySelection(Struct, kw_only=True):
    """Selection of entries by number, session and method. A response is selected with its request.

    A response without a request on the tape has no method: it is selected only if no method is
    given.
    """

    first: int = 0
    last: int | None = None
    session: str | None = None
    method: Callable[[str], bool] | None = None
    # True to keep the opening of each session, regardless of `first` and `last`
    opening: bool = False
    _kept: set[_Asked] = field(default_factory=set)  # pending requests that were selected
    _left: set[_Asked] = field(default_factory=set)  # pending requests that were not selected

    def is_over(self, entry: TapeEntry) -> bool:
        """Return True if no further entry can match, so that reading can stop."""
        return self.last is not None and entry.seq > self.last and not self._kept

    def takes(self, entry: TapeEntry) -> bool:
        """Return True if an entry is selected. Call this method once per entry, in tape order."""
        if self.session is not None and entry.session != self.session:
            return False
        message = message_heading(entry)
        inside = self.first <= entry.seq and (self.last is None or entry.seq <= self.last)
        if message.method is None:
            asked = (entry.session, entry.dir.reverse().value, message.name)
            for group, wanted in ((self._kept, True), (self._left, False)):
                if asked in group:
                    group.discard(asked)
                    return wanted
            return inside and self.method is None
        named = str(message.method)
        wanted = inside and (self.method is None or self.method(named))
        wanted = wanted or (self.opening and named in _OPENING)
        if message.is_request:
            group = self._kept if wanted else self._left
            group.add((entry.session, entry.dir.value, message.name))
        return wanted


def select_lines(
    lines: Iterable[tuple[LineLocation, bytes, TapeEntry]], choice: EntrySelection
) -> Iterator[tuple[bytes, TapeEntry]]:
    """Yield the selected entries, each with its line as written."""
    for _, line, entry in lines:
        if choice.is_over(entry):
            return
        if choice.takes(entry):
            yield line, entry


def trim(
    reader: TapeReader,
    choice: EntrySelection,
    target: str | os.PathLike[str],
    *,
    overwrite: bool = True,
) -> int:
    """Write the selected entries to another tape, or replace the tape; return the number of
    entries.

    Raises:
        ConfigError: The tape or the target is being recorded, or no entry is selected.
        FileExistsError: The target exists and `overwrite` is not set.
        OSError: The target cannot be written.
    """
    if reader.info.status == "recording":
        raise ConfigError(f"{reader.base} is being recorded: stop the recording first")
    base = base_of(target)
    place, about = Path(f"{base}{LINES}"), Path(f"{base}{ABOUT}")
    if place.is_file() and TapeReader(place).info.status == "recording":
        raise ConfigError(f"{base} is being recorded: choose another name")
    check_not_existing(place, overwrite=overwrite)
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Both files are complete on disk before a tape is replaced, because the disk may be full.
    with (
        open_output(about, overwrite=overwrite) as companion,
        open_output(place, overwrite=overwrite) as lines,
    ):
        count = 0
        # Lines are copied unchanged, because a newer version may have written unknown members.
        for line, _ in select_lines(reader.lines(), choice):
            lines.write(line)
            count += 1
        if not count and reader.read:
            raise ConfigError(f"no entry of {reader.base} matches: nothing was written")
        info = msgspec.structs.replace(
            reader.info, name=Path(base).name, entries=count, parts=1, status="complete"
        )
        companion.write(msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n")
        companion.flush()
    for old in parts_of(base)[1:]:
        old.unlink(missing_ok=True)
    return count
