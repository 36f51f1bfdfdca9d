"""Reading a tape, whole or cut off, line by line: it may be larger than memory."""

import math
import os
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from ...errors import ConfigError
from ...wire.json import UNREADABLE, read_json
from .format import ABOUT, LINES, VERSION, TapeEntry, TapeInfo, base_of
from .recording_lock import held
from .tape_files import number_of_part, parts_of

__all__ = [
    "LineIndex",
    "LineLocation",
    "TapePage",
    "TapeReader",
    "decode_entry",
    "read_page",
    "read_tape",
]

MAX_LINE: Final = 64 << 20
MAX_ABOUT: Final = 1 << 20  # bytes of a companion file
BUFFER: Final = 256 << 10
MOST_BYTES: Final = 8 << 20  # of one page, unless a single entry has more
LATEST: Final = 253_000_000_000.0  # seconds; the year 9987, behind which there are no dates

_decode = msgspec.json.Decoder(TapeEntry).decode


class LineLocation(Struct, frozen=True, gc=False):
    """One line: the part that it is in, where it begins there, and how long it is."""

    part: int
    offset: int
    length: int


class TapeReader:
    """The entries of a tape, in order, over all of its parts. May be gone through many times."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """`path` is the tape with or without its ending, or any file with such lines.

        Raises:
            ConfigError: there is no such tape, or it is of a version that we do not know.
        """
        self.skipped = 0  # lines that could not be read, the last time
        self.read = 0  # those that could
        self.repeated = 0  # entries that have the number of the one before
        self.disordered = 0  # those that have a lower one
        self.whole = False  # it was read up to its end
        self.troubles: list[str] = []  # with what its companion says
        self.on_read: Callable[[int], None] | None = None  # hears how many bytes were read
        self.base = base_of(path)
        self._alone: Path | None = None
        if not Path(f"{self.base}{LINES}").is_file():
            if not Path(path).is_file():
                raise ConfigError(f"There is no tape {path}")
            self._alone = Path(path)
        self.info = self._read_info()
        if self.info.version != VERSION:
            raise ConfigError(
                f"{path} is a tape of version {self.info.version}; this Fairlead reads {VERSION}"
            )

    def __iter__(self) -> Iterator[TapeEntry]:
        return (entry for _, _, entry in self.lines())

    def lines(self) -> Iterator[tuple[LineLocation, bytes, TapeEntry]]:
        """Yield the entries with their place in `parts`, and the line as it was written."""
        self.skipped = self.read = self.repeated = self.disordered = 0
        self.whole, before = False, None
        for number, part in enumerate(self.parts):
            for found in self.lines_of(part, 0, number):
                seq = found[2].seq
                if before is not None and seq <= before:
                    self.repeated += seq == before
                    self.disordered += seq < before
                self.read, before = self.read + 1, seq
                yield found
        self.whole = True

    @property
    def parts(self) -> list[Path]:
        """The files with the lines."""
        return [self._alone] if self._alone is not None else parts_of(self.base)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(part.stat().st_size for part in self.parts)

    def lines_of(
        self, place: Path, offset: int = 0, number: int = 0
    ) -> Iterator[tuple[LineLocation, bytes, TapeEntry]]:
        """Yield the same for one part, from an offset on."""
        with place.open("rb", buffering=BUFFER) as file:
            inside = False  # of a line that is too long
            file.seek(offset)
            while line := file.readline(MAX_LINE):
                spot = LineLocation(number, offset, len(line))
                offset += len(line)
                if self.on_read is not None:
                    self.on_read(len(line))
                whole = line.endswith(b"\n")
                if inside or not whole:
                    self.skipped += not inside
                    inside = not whole
                    continue
                if line.isspace():
                    continue
                try:
                    entry = _decode(line)
                    if not line.isascii():
                        line.decode()  # what stays as it is was not looked at
                except UNREADABLE:
                    self.skipped += 1
                else:
                    yield spot, line, entry

    def _read_info(self) -> TapeInfo:
        name = Path(self.base).name
        if self._alone is not None:
            return TapeInfo(name=name, status="cut")
        info = TapeInfo(name=name)
        try:
            with open(f"{self.base}{ABOUT}", "rb") as file:
                info, wrong = plausible_info(_info_of(file.read(MAX_ABOUT)))
            if wrong:
                self.troubles.append(f"what {name}{ABOUT} says of {', '.join(wrong)} is not true")
        except FileNotFoundError:
            self.troubles.append(f"there is no {name}{ABOUT}: how it was recorded is not known")
        except OSError as exc:
            self.troubles.append(f"{name}{ABOUT} cannot be read: {exc.strerror}")
        except UNREADABLE as exc:
            self.troubles.append(f"{name}{ABOUT} cannot be read: {exc}")
        if info.status == "recording" and not self._is_held():
            info.status = "cut"  # whoever recorded it ended without a word
        return info

    def _is_held(self) -> bool:
        with Path(f"{self.base}{LINES}").open("rb") as file:
            return held(file.fileno())


class LineIndex:
    """Lines of a tape by number: where they are is noted, so that they can be read again.

    The files are kept open: what is renamed or deleted meanwhile can still be read. And the notes
    are columns of plain numbers, because a tape may have millions of lines.
    """

    def __init__(self, parts: Iterable[Path]) -> None:
        self._parts, self._offsets, self._lengths = array("I"), array("Q"), array("I")
        self._files = [place.open("rb", buffering=0) for place in parts]
        for file in self._files:
            weakref.finalize(self, file.close)

    def note(self, spot: LineLocation) -> int:
        """The number by which the line there can be read, counted from 0."""
        self._parts.append(spot.part)
        self._offsets.append(spot.offset)
        self._lengths.append(spot.length)
        return len(self._parts) - 1

    def read(self, number: int) -> TapeEntry:
        """The entry on a line.

        Raises:
            ConfigError: another one is there now.
        """
        file, length = self._files[self._parts[number]], self._lengths[number]
        file.seek(self._offsets[number])
        line = bytearray(length)
        view, count = memoryview(line), 0
        while count < length and (some := file.readinto(view[count:])):
            count += some
        try:
            return _decode(bytes(line) if count == length else b"")
        except UNREADABLE:
            raise ConfigError(f"{file.name} has been written anew since it was read") from None


class TapePage(Struct, frozen=True):
    """Some entries."""

    entries: list[TapeEntry]
    next: str  # where the next page begins
    more: bool  # whether something is there already


def read_page(reader: TapeReader, since: str = "", limit: int = 100) -> TapePage:
    """Some entries from a place on, which is `next` of the page before.

    Raises:
        ValueError: that is no place.
    """
    part, offset = _place(since)
    entries: list[TapeEntry] = []
    count = 0
    for index, place in enumerate(reader.parts):
        number = number_of_part(place) if index else 1
        if number < part:
            continue
        if number > part:  # that one has ended, or was dropped meanwhile
            part, offset = number, 0
        for spot, _, entry in reader.lines_of(place, offset):
            if len(entries) >= limit or (entries and count + spot.length > MOST_BYTES):
                return TapePage(entries, f"{part}-{offset}", more=True)
            entries.append(entry)
            count += spot.length
            offset = spot.offset + spot.length
    return TapePage(entries, f"{part}-{offset}", more=False)


def _place(text: str) -> tuple[int, int]:
    part, _, offset = (text or "1-0").partition("-")
    if not all(one.isascii() and one.isdigit() and len(one) < 19 for one in (part, offset)):
        raise ValueError(f"{text[:50]!r} is no place on a tape")
    return int(part), int(offset)


def read_tape(path: str | os.PathLike[str]) -> list[TapeEntry]:
    """All entries at once, for tapes of a reasonable size."""
    return list(TapeReader(path))


def decode_entry(entry: TapeEntry) -> dict[str, Any]:
    """The message of an entry, decoded; one that is no object is empty."""
    return read_json(entry.message, dict[str, Any], {})


class _Versioned(msgspec.Struct):
    version: int = VERSION


def _info_of(raw: bytes) -> TapeInfo:
    """A version that we do not know may have other members; its number is enough."""
    version = msgspec.json.decode(raw, type=_Versioned).version
    if version != VERSION:
        return TapeInfo(version=version)
    return msgspec.json.decode(raw, type=TapeInfo)


def plausible_info(info: TapeInfo) -> tuple[TapeInfo, list[str]]:
    """What a companion file says, as far as it may be true; and what is not."""
    wrong = []
    for member in ("began", "ended"):
        value = getattr(info, member)
        if value is not None and not (math.isfinite(value) and 0 <= value < LATEST):
            wrong.append(member)
            info = msgspec.structs.replace(info, **{member: 0.0 if member == "began" else None})
    for member, least in (("entries", 0), ("lost", 0), ("parts", 1)):
        if getattr(info, member) < least:
            wrong.append(member)
            info = msgspec.structs.replace(info, **{member: least})
    return info, wrong
