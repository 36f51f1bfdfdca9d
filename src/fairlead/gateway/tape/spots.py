"""Where lines of a tape are, so that they are read when they are needed."""

import weakref
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
    """The files of a tape, kept open: what is renamed or deleted meanwhile can still be read."""

    def __init__(self, parts: Iterable[Path]) -> None:
        self._files = [place.open("rb", buffering=0) for place in parts]
        for file in self._files:
            weakref.finalize(self, file.close)

    def read(self, spot: Spot) -> Entry:
        """The entry there.

        Raises:
            ConfigError: another one is there now.
        """
        file = self._files[spot.part]
        file.seek(spot.offset)
        line = bytearray(spot.length)
        view, count = memoryview(line), 0
        while count < spot.length and (some := file.readinto(view[count:])):
            count += some
        try:
            return _decode(bytes(line) if count == spot.length else b"")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ConfigError(f"{file.name} has been written anew since it was read") from None
