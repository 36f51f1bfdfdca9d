"""Reading a tape, whole or cut off, line by line: it may be larger than memory."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from ...errors import ConfigError
from .format import ABOUT, LINES, VERSION, Entry, TapeInfo, base_of
from .locking import held
from .parts import parts_of
from .spots import Spot

__all__ = ["TapeReader", "plain", "read_tape"]

MAX_LINE: Final = 64 << 20
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
        self.skipped = 0
        for number, part in enumerate(self.parts):
            yield from self.lines_of(part, 0, number)

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
                    yield spot, _decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    self.skipped += 1

    def _read_info(self) -> TapeInfo:
        name = Path(self.base).name
        if self._alone is not None:
            return TapeInfo(name=name, status="cut")
        try:
            raw = Path(f"{self.base}{ABOUT}").read_bytes()
            info = _info_of(raw)
        except (OSError, msgspec.DecodeError):
            info = TapeInfo(name=name)
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
