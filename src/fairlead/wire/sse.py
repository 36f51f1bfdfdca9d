"""Server-sent events: parser for a byte stream, and encoder.

Implements https://html.spec.whatwg.org/multipage/server-sent-events.html, sections 9.2.5 and 9.2.6.
The parser works on bytes, so that a character split between two chunks is complete before it is
decoded.
"""

import re
from typing import Any

import msgspec
from msgspec import Struct

from .codec import MAX_MESSAGE
from .json import CR, single_line

__all__ = ["HEARTBEAT", "Event", "EventParser", "EventTooLong", "encode_event", "parse_sse"]

HEARTBEAT = b": heartbeat\n\n"

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")


class Event(Struct, frozen=True, gc=False):
    """A server-sent event.

    `data` is empty if the event sets only the last event id or the retry time.
    """

    data: bytes
    event: str = "message"
    id: str | None = None  # the last event id after this event
    retry: int | None = None  # milliseconds, if this event sets the retry time


class EventTooLong(Struct, frozen=True):
    """Placeholder for an event that exceeds the limit."""

    size: int
    id: str | None = None


class EventParser:
    """Parser that takes chunks and returns complete events.

    At most one unfinished event of `limit` bytes is buffered. Unlike a browser, the parser also
    returns events without data, because a resumable stream starts with such an event.
    """

    __slots__ = (
        "_at_start",
        "_data",
        "_event",
        "_limit",
        "_line",
        "_line_size",
        "_new_id",
        "_retry",
        "_size",
        "_skip_lf",
        "last_id",
    )

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self.last_id: str | None = None
        self._limit = limit
        self._line: list[bytes] = []  # pieces of the unfinished line
        self._data: list[bytes] = []  # data lines of the unfinished event
        self._line_size = 0  # includes bytes beyond the limit, which are not stored
        self._size = 0  # size of the event's complete lines; comments are not counted
        self._event = ""
        self._new_id: str | None = None
        self._retry: int | None = None
        # True if the last chunk ended in CR; a LF that follows belongs to the same line break
        self._skip_lf = False
        self._at_start = True

    @property
    def held(self) -> int:
        """Return the number of bytes buffered for an unfinished event."""
        return sum(map(len, self._line)) + sum(map(len, self._data))

    def feed(self, chunk: bytes) -> list[Event | EventTooLong]:
        if self._at_start and chunk:
            chunk = self._without_bom(chunk)
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if not chunk:
            return []
        # Without a CR, a plain split is faster than the regular expression.
        lines = _LINE_END.split(chunk) if CR in chunk else chunk.split(b"\n")
        self._skip_lf = chunk.endswith(b"\r")
        rest = lines.pop()
        out: list[Event | EventTooLong] = []
        for line in lines:
            size = len(line)
            # Part of this line arrived in an earlier chunk.
            if self._line:
                size += self._line_size
                self._keep(line)
                line = b"".join(self._line)
                self._line.clear()
                self._line_size = 0
            if not line:
                self._dispatch(out)
            # A comment of any length is not part of the event and does not count against its limit.
            elif not line.startswith(b":"):
                self._size += size
                if self._size <= self._limit:
                    self._field(line)
                else:
                    self._data.clear()
        if rest:
            self._keep(rest)
        return out

    def _without_bom(self, chunk: bytes) -> bytes:
        """Remove a byte order mark from the start of the stream, even if it arrives in pieces."""
        if self._line:
            chunk = b"".join(self._line) + chunk
            self._line.clear()
            self._line_size = 0
        if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
            self._keep(chunk)
            return b""
        self._at_start = False
        return chunk.removeprefix(_BOM)

    def _keep(self, piece: bytes) -> None:
        self._line_size += len(piece)
        if self._size + self._line_size <= self._limit:
            self._line.append(piece)
        elif not self._line:
            # One byte is enough to show that a line is unfinished and whether it is a comment.
            self._line.append(piece[:1])

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id":
            # The specification ignores ids that contain NUL.
            if b"\0" not in value:
                self._new_id = value.decode("utf-8", "replace")
        # Nine digits are eleven days; `int` would raise for thousands of digits.
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self._retry = int(value)

    def _dispatch(self, out: list[Event | EventTooLong]) -> None:
        size, data, self._size = self._size, self._data, 0
        # The id of an oversized event is kept, so that the stream can be resumed after it.
        if self._new_id is not None:
            self.last_id = self._new_id
        if size > self._limit:
            out.append(EventTooLong(size, self.last_id))
        elif data or self._new_id is not None or self._retry is not None:
            body = data[0] if len(data) == 1 else b"\n".join(data)
            out.append(Event(body, self._event or "message", self.last_id, self._retry))
        self._data = []
        self._event, self._new_id, self._retry = "", None, None


def encode_event(
    data: bytes, *, event: str | None = None, id: str | None = None, retry: int | None = None
) -> bytes:
    """Return one event with a JSON text as its data, written on one line."""
    head = b""
    if event is not None:
        head += b"event: %b\n" % event.encode()
    if id is not None:
        head += b"id: %b\n" % id.encode()
    if retry is not None:
        head += b"retry: %d\n" % retry
    return b"%bdata: %b\n\n" % (head, single_line(data))


def parse_sse(text: str) -> Any:
    """Return the JSON value in the first `data: ` line that contains JSON, otherwise in the whole
    text.

    `[DONE]` and lines that are not JSON are skipped. Returns None if no JSON is found.
    """
    for line in _TEXT_LINE_END.split(text):
        if line.startswith("data: "):
            value = _value(line.removeprefix("data: "))
            if value is not msgspec.UNSET:
                return value
    whole = _value(text)
    return None if whole is msgspec.UNSET else whole


_TEXT_LINE_END = re.compile(r"\r\n|\n|\r")


def _value(text: str) -> Any:
    if text.strip() == "[DONE]":
        return msgspec.UNSET
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return msgspec.UNSET
