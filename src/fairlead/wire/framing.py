"""Cutting a byte stream into lines, whatever the chunks were, within a bound."""

from msgspec import Struct

from ..limits import MESSAGE_BYTES

__all__ = ["MAX_MESSAGE", "LineSplitter", "TooLong"]

MAX_MESSAGE = MESSAGE_BYTES.value

_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n\x0b\x0c"
_SHOWN = 200  # bytes of a line that is too long


class TooLong(Struct, frozen=True):
    """Stands where a line over the limit was: its length, and how it began."""

    size: int
    start: bytes


class LineSplitter:
    """Feed it chunks, get whole lines back, without line ends, blank lines and surrounding blanks.

    Holds at most one unfinished line of `limit` bytes; the rest of a longer one is dropped as it
    arrives and reported once, when it ends.
    """

    __slots__ = ("_at_start", "_limit", "_parts", "_size", "_start")

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._parts: list[bytes | bytearray] = []  # of the unfinished line
        self._size = 0
        self._start = b""  # of a line that grew over the limit
        self._at_start = True

    @property
    def held(self) -> int:
        """Bytes in memory for a line that has not ended yet."""
        return self._size if self._size <= self._limit else len(self._start)

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        end = len(chunk) - 1
        if (  # one whole line and nothing else, as nearly always
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
        """The stream has ended: a last line without its line end still counts."""
        out: list[bytes | TooLong] = []
        if self._size:
            self._release(out)
        return out

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            if len(self._start) < _SHOWN:
                parts = (*self._parts[:_SHOWN], self._start, piece)
                self._start = b"".join(part[:_SHOWN] for part in parts)[:_SHOWN]
                self._parts.clear()
            return
        # Small pieces share one buffer: a peer that drips single bytes must not cost an object for
        # each.
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
