"""Reading a tape, whole or cut off, line by line: it may be larger than memory."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from ...errors import ConfigError
from .doubts import believed
from .format import ABOUT, LINES, VERSION, Entry, TapeInfo, base_of
from .locking import held
from .parts import parts_of
from .spots import Spot

__all__ = ["TapeReader", "plain", "read_tape"]

MAX_LINE: Final = 64 << 20
MAX_ABOUT: Final = 1 << 20  # bytes of a companion file
BUFFER: Final = 256 << 10

_decode = msgspec.json.Decoder(Entry).decode


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

    def __iter__(self) -> Iterator[Entry]:
        return (entry for _, entry in self.placed())

    def placed(self) -> Iterator[tuple[Spot, Entry]]:
        """The entries, and where they are in `parts`."""
        return ((spot, entry) for spot, _, entry in self._lines())

    def as_written(self) -> Iterator[tuple[bytes, Entry]]:
        """The entries, and the lines that they stand on, with all that we do not know of."""
        return ((line, entry) for _, line, entry in self._lines())

    def _lines(self) -> Iterator[tuple[Spot, bytes, Entry]]:
        self.skipped = self.read = self.repeated = self.disordered = 0
        self.whole, before = False, None
        for number, part in enumerate(self.parts):
            for found in self._lines_of(part, 0, number):
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
    ) -> Iterator[tuple[Spot, Entry]]:
        """Those of one part, from a line on."""
        return ((spot, entry) for spot, _, entry in self._lines_of(place, offset, number))

    def _lines_of(
        self, place: Path, offset: int, number: int
    ) -> Iterator[tuple[Spot, bytes, Entry]]:
        with place.open("rb", buffering=BUFFER) as file:
            inside = False  # of a line that is too long
            file.seek(offset)
            while line := file.readline(MAX_LINE):
                spot = Spot(number, offset, len(line))
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
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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
                info, wrong = believed(_info_of(file.read(MAX_ABOUT)))
            if wrong:
                self.troubles.append(f"what {name}{ABOUT} says of {', '.join(wrong)} is not true")
        except FileNotFoundError:
            self.troubles.append(f"there is no {name}{ABOUT}: how it was recorded is not known")
        except OSError as exc:
            self.troubles.append(f"{name}{ABOUT} cannot be read: {exc.strerror}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            self.troubles.append(f"{name}{ABOUT} cannot be read: {exc}")
        if info.status == "recording" and not self._is_held():
            info.status = "cut"  # whoever recorded it ended without a word
        return info

    def _is_held(self) -> bool:
        with Path(f"{self.base}{LINES}").open("rb") as file:
            return held(file.fileno())


def read_tape(path: str | os.PathLike[str]) -> list[Entry]:
    """All entries at once, for tapes of a reasonable size."""
    return list(TapeReader(path))


def plain(entry: Entry) -> dict[str, Any]:
    """The message of an entry, decoded; one that is no object is empty."""
    try:
        decoded = msgspec.json.decode(entry.message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


class _Versioned(msgspec.Struct):
    version: int = VERSION


def _info_of(raw: bytes) -> TapeInfo:
    """A version that we do not know may have other members; its number is enough."""
    version = msgspec.json.decode(raw, type=_Versioned).version
    if version != VERSION:
        return TapeInfo(version=version)
    return msgspec.json.decode(raw, type=TapeInfo)
