"""Where lines of a tape are, so that they are read when they are needed."""

import weakref
from array import array
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from ...errors import ConfigError
from .format import Entry

__all__ = ["Lines", "Spot"]

_decode = msgspec.json.Decoder(Entry).decode


class Spot(Struct, frozen=True, gc=False):
    """One line: the part that it is in, where it begins there, and how long it is."""

    part: int
    offset: int
    length: int


class Lines:
    """Lines of a tape by number: where they are is noted, so that they can be read again.

    The files are kept open: what is renamed or deleted meanwhile can still be read. And the notes
    are columns of plain numbers, because a tape may have millions of lines.
    """

    def __init__(self, parts: Iterable[Path]) -> None:
        self._parts, self._offsets, self._lengths = array("I"), array("Q"), array("I")
        self._files = [place.open("rb", buffering=0) for place in parts]
        for file in self._files:
            weakref.finalize(self, file.close)

    def note(self, spot: Spot) -> int:
        """The number by which the line there can be read, counted from 0."""
        self._parts.append(spot.part)
        self._offsets.append(spot.offset)
        self._lengths.append(spot.length)
        return len(self._parts) - 1

    def read(self, number: int) -> Entry:
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
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ConfigError(f"{file.name} has been written anew since it was read") from None
