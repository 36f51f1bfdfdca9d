"""Reader for tapes, which may be truncated and larger than memory."""

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

__all__ = ["LineIndex", "LineLocation", "TapeReader", "decode_entry", "read_page", "read_tape"]

MAX_LINE: Final = 64 << 20  # maximum length of a line, in bytes
MAX_ABOUT: Final = 1 << 20  # maximum size of a companion file, in bytes
BUFFER: Final = 256 << 10  # size of the read buffer, in bytes
# Maximum size of a page in bytes; a single larger entry is still returned.
MOST_BYTES: Final = 8 << 20

_decode = msgspec.json.Decoder(TapeEntry).decode


class LineLocation(Struct, frozen=True, gc=False):
    """Location of a line: the part of the tape, the offset in that part, and the length."""

    part: int
    offset: int
    length: int


class TapeReader:
    """Reader for all entries of a tape, in order. It can be iterated more than once."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a tape, with or without its suffix in `path`, or another file with lines of this
        format.

        Raises:
            ConfigError: The tape does not exist, or has an unknown version.
        """
        self.skipped = 0  # number of lines that could not be decoded in the last iteration
        self.read = 0  # number of lines that were decoded in the last iteration
        self.repeated = 0  # number of entries with the same sequence number as the previous entry
        # Number of entries with a lower sequence number than the previous entry.
        self.disordered = 0
        self.whole = False  # True if the last iteration reached the end
        self.troubles: list[str] = []  # problems with the companion file
        self.on_read: Callable[[int], None] | None = None  # called with the number of bytes read
        self.base = base_of(path)
        self._alone: Path | None = None
        if not Path(f"{self.base}{LINES}").is_file():
            if not Path(path).is_file():
                raise ConfigError(f"tape {path} does not exist")
            self._alone = Path(path)
        self.info = self._read_info()
        if self.info.version != VERSION:
            raise ConfigError(
                f"{path} has tape version {self.info.version}; this Fairlead reads {VERSION}"
            )

    def __iter__(self) -> Iterator[TapeEntry]:
        return (entry for _, _, entry in self.lines())

    def lines(self) -> Iterator[tuple[LineLocation, bytes, TapeEntry]]:
        """Yield the entries with their location in `parts` and the line as written."""
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
        """The files that contain the lines of the tape."""
        return [self._alone] if self._alone is not None else parts_of(self.base)

    @property
    def size(self) -> int:
        """Size on disk in bytes."""
        return sum(part.stat().st_size for part in self.parts)

    def lines_of(
        self, place: Path, offset: int = 0, number: int = 0
    ) -> Iterator[tuple[LineLocation, bytes, TapeEntry]]:
        """Yield the entries of one part, starting at an offset; see `lines`."""
        with place.open("rb", buffering=BUFFER) as file:
            inside = False  # True while inside a line that is too long
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
                        # `Raw` members are not checked for valid UTF-8 by the decoder
                        line.decode()
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
                info = _info_of(file.read(MAX_ABOUT))
        except FileNotFoundError:
            self.troubles.append(f"{name}{ABOUT} is missing: details of the recording are unknown")
        except OSError as exc:
            self.troubles.append(f"{name}{ABOUT} cannot be read: {exc.strerror}")
        except UNREADABLE as exc:
            self.troubles.append(f"{name}{ABOUT} cannot be read: {exc}")
        with open(f"{self.base}{LINES}", "rb") as file:
            if info.status == "recording" and not held(file.fileno()):
                info.status = "cut"  # the recording process ended without closing the tape
        return info


class LineIndex:
    """Index of a tape's lines, for reading a line again by its number.

    The files stay open, so that they can be read after they were renamed or deleted. Locations are
    stored in arrays of numbers, because a tape may have millions of lines.
    """

    def __init__(self, parts: Iterable[Path]) -> None:
        self._parts, self._offsets, self._lengths = array("I"), array("Q"), array("I")
        self._files = [place.open("rb", buffering=0) for place in parts]
        for file in self._files:
            weakref.finalize(self, file.close)

    def note(self, spot: LineLocation) -> int:
        """Add a line and return its number, counted from 0."""
        self._parts.append(spot.part)
        self._offsets.append(spot.offset)
        self._lengths.append(spot.length)
        return len(self._parts) - 1

    def read(self, number: int) -> TapeEntry:
        """Read the entry on a line.

        Raises:
            ConfigError: The file was overwritten since the line was added.
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
            raise ConfigError(f"{file.name} was overwritten while it was read") from None


class TapePage(Struct, frozen=True):
    """A page of entries."""

    entries: list[TapeEntry]
    next: str  # position of the next page
    more: bool  # True if the next page already has entries


def read_page(reader: TapeReader, since: str = "", limit: int = 100) -> TapePage:
    """Return the entries after a position, which is the previous page's `next`.

    Raises:
        ValueError: The position is invalid.
    """
    part, offset = _place(since)
    entries: list[TapeEntry] = []
    count = 0
    for index, place in enumerate(reader.parts):
        number = number_of_part(place) if index else 1
        if number < part:
            continue
        # The requested part has been read completely, or was dropped in the meantime.
        if number > part:
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
        raise ValueError(f"invalid tape position {text[:50]!r}: expected PART-OFFSET")
    return int(part), int(offset)


def read_tape(path: str | os.PathLike[str]) -> list[TapeEntry]:
    """Read all entries into memory."""
    return list(TapeReader(path))


def decode_entry(entry: TapeEntry) -> dict[str, Any]:
    """Decode an entry's message; return an empty dict if it is not an object."""
    return read_json(entry.message, dict[str, Any], {})


class _Versioned(msgspec.Struct):
    version: int = VERSION


def _info_of(raw: bytes) -> TapeInfo:
    """Decode the companion file. If its version is unknown, decode only the version."""
    version = msgspec.json.decode(raw, type=_Versioned).version
    if version != VERSION:
        return TapeInfo(version=version)
    return msgspec.json.decode(raw, type=TapeInfo)
