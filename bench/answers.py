"""Raw HTTP responses: detection of the end, and parsing."""

from __future__ import annotations

import re
from typing import NamedTuple

from .child import Failed

__all__ = ["Reply", "is_whole", "read"]

_length = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE).search
_END = b"\r\n\r\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"  # JSON escapes line breaks, so a body cannot contain this


def is_whole(data: bytes) -> bool:
    """Return True if a response is complete. Only this is checked while the clock runs."""
    end = data.find(_END)
    if end < 0:
        return False
    if found := _length(data, 0, end + 2):
        return len(data) >= end + 4 + int(found[1])
    return data.endswith(_LAST_CHUNK) or data.startswith(b"HTTP/1.1 204")


class Reply(NamedTuple):
    """A parsed response."""

    status: int
    headers: dict[str, str]
    messages: list[bytes]  # the body, or the data of each event in it


def read(data: bytes) -> Reply:
    """Parse a complete response.

    Raises:
        Failed: Its framing is invalid or more data follows.
    """
    head, _, body = data.partition(_END)
    first, *fields = head.decode("latin-1").split("\r\n")
    pairs = [field.partition(":") for field in fields]
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if "chunked" in headers.get("transfer-encoding", ""):
        body = _unchunked(body)
    elif len(body) != int(headers.get("content-length", 0)):
        raise Failed(f"{len(body)} bytes where {headers.get('content-length')} were promised")
    if headers.get("content-type", "").startswith("text/event-stream"):
        messages = _events(body)
    else:
        messages = [body] if body else []
    return Reply(int(first.split()[1]), headers, messages)


def _unchunked(body: bytes) -> bytes:
    parts: list[bytes] = []
    while True:
        size, _, body = body.partition(b"\r\n")
        count = int(size, 16)
        parts.append(body[:count])
        if body[count : count + 2] != b"\r\n":
            raise Failed(f"a chunk of {count} bytes that does not end there")
        body = body[count + 2 :]
        if not count:
            break
    if body:
        raise Failed(f"something after the last chunk: {body[:100]!r}")
    return b"".join(parts)


def _events(body: bytes) -> list[bytes]:
    """Return the data of the events that have any."""
    found = []
    for event in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
        if data := b"\n".join(lines):
            found.append(data)
    return found
