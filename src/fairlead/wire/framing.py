"""Splitting of a byte stream into lines of limited length."""

from msgspec import Struct

from ..limits import MESSAGE_BYTES

__all__ = ["MAX_MESSAGE", "LineSplitter", "TooLong"]

MAX_MESSAGE = MESSAGE_BYTES.value

_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n\x0b\x0c"
_SHOWN = 200  # bytes of a line over the limit that are kept for a log message


class TooLong(Struct, frozen=True):
    """Placeholder for a line over the limit, with its length and its start."""

    size: int
    start: bytes


class LineSplitter:
    """Splitter that takes chunks and returns complete lines.

    Lines are returned without line ends and surrounding whitespace; blank lines are left out. At
    most one unfinished line of `limit` bytes is buffered. The rest of a longer line is dropped on
    arrival, and the line is reported once, when it ends.
    """

    __slots__ = ("_at_start", "_limit", "_parts", "_size", "_start")

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._parts: list[bytes | bytearray] = []  # pieces of the unfinished line
        self._size = 0
        self._start = b""  # start of an unfinished line over the limit
        # A byte order mark is removed from the first line only.
        self._at_start = True

    @property
    def held(self) -> int:
        """Return the number of bytes buffered for an unfinished line."""
        return self._size if self._size <= self._limit else len(self._start)

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        end = len(chunk) - 1
        # Fast path: nearly every chunk is exactly one line.
        if (
            not self._size
            and chunk[:1] == b"{"
            and chunk[-2:] == b"}\n"
            and end <= self._limit
            and chunk.find(b"\n") == end
        ):
            self._at_start = False
            return [chunk[:end]]
        lines: list[bytes] = chunk.split(b"\n")
        rest = lines.pop()
        out: list[bytes | TooLong] = []
        if self._size and lines:
            self._hold(lines[0])
            del lines[0]
            self._release(out)
        for line in lines:
            if len(line) > self._limit:
                out.append(TooLong(len(line), line[:_SHOWN]))
            elif line := self._trim(line):
                out.append(line)
        if rest:
            self._hold(rest)
        return out

    def finish(self) -> list[bytes | TooLong]:
        """Return the last line if the stream ended without a line end."""
        out: list[bytes | TooLong] = []
        if self._size:
            self._release(out)
        return out

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            if len(self._start) < _SHOWN:
                # Only the last piece can be empty, so this many pieces contain `_SHOWN` bytes.
                parts = (*self._parts[:_SHOWN], self._start, piece)
                self._start = b"".join(part[:_SHOWN] for part in parts)[:_SHOWN]
                self._parts.clear()
            return
        # Small pieces share one buffer, so that a peer that sends single bytes does not cost an
        # object for each byte.
        if len(piece) < 4096 and self._parts and isinstance(last := self._parts[-1], bytearray):
            last += piece
        else:
            self._parts.append(bytearray(piece) if len(piece) < 4096 else piece)

    def _release(self, out: list[bytes | TooLong]) -> None:
        if self._size > self._limit:
            out.append(TooLong(self._size, self._start))
        elif line := self._trim(b"".join(self._parts)):
            out.append(line)
        self._parts.clear()
        self._size = 0
        self._start = b""

    def _trim(self, line: bytes) -> bytes:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        return line.strip(_BLANKS)
