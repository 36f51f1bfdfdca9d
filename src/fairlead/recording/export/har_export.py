"""Export of a tape to an HTTP archive (HAR 1.2), which browsers and other programs can display."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ..tape.format import TapeEntry, TapeInfo
from ..tape.message_summary import message_heading

__all__ = ["har_text"]

SESSIONS: Final = 1000  # maximum number of sessions whose headers are remembered


def har_text(info: TapeInfo, entries: Iterable[TapeEntry]) -> Iterator[bytes]:
    """Yield the archive in chunks, because a tape may be larger than memory."""
    creator = {"name": "fairlead", "version": info.fairlead or "0"}
    yield b'{"log":{"version":"1.2","creator":' + msgspec.json.encode(creator) + b',"entries":['
    for n, entry in enumerate(_entries(info, entries)):
        yield (b",\n" if n else b"\n") + msgspec.json.encode(entry)
    yield b"\n]}}\n"


def _entries(info: TapeInfo, entries: Iterable[TapeEntry]) -> Iterator[dict[str, Any]]:
    """Yield one entry per request with its response, and one per notification."""
    url = str(info.about.get("url") or "http://localhost/mcp")
    open_: dict[tuple[str, str | None, Any], tuple[TapeEntry, str]] = {}
    headers: dict[str | None, dict[str, str]] = {}
    for entry in entries:
        message = message_heading(entry)
        known = (entry.transport or {}).get("headers")
        if isinstance(known, dict):
            headers[entry.session] = known
            if len(headers) > SESSIONS:
                # Each stateless request is a session, so only the latest sessions are remembered.
                del headers[next(iter(headers))]
        method = str(message.method)
        if message.method is None:
            asked = open_.pop((entry.dir.reverse().value, entry.session, message.name), None)
            if asked is not None:
                yield _entry(info, url, headers.get(entry.session), *asked, entry)
        elif message.is_request:
            key = entry.dir.value, entry.session, message.name
            # The id was reused before the first request had a response.
            if (before := open_.pop(key, None)) is not None:
                yield _entry(info, url, headers.get(entry.session), *before, None)
            open_[key] = entry, method
        else:
            yield _entry(info, url, headers.get(entry.session), entry, method, None)
    for entry, method in open_.values():
        yield _entry(info, url, headers.get(entry.session), entry, method, None)


def _entry(
    info: TapeInfo,
    url: str,
    headers: dict[str, str] | None,
    entry: TapeEntry,
    method: str,
    answer: TapeEntry | None,
) -> dict[str, Any]:
    body = bytes(entry.message).decode()
    back = "" if answer is None else bytes(answer.message).decode()
    lasted = 0.0 if answer is None else max(0.0, answer.at - entry.at) * 1000
    said = [{"name": k, "value": str(v)} for k, v in (headers or {}).items()]
    return {
        "startedDateTime": _moment(info.began + entry.at),
        "time": lasted,
        "comment": f"{entry.dir.value} {method}",
        "request": {
            "method": "POST",
            "url": url,
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": said,
            "queryString": [],
            "postData": {"mimeType": "application/json", "params": [], "text": body},
            "headersSize": -1,
            "bodySize": len(body.encode()),
        },
        "response": {
            "status": 202 if answer is None else 200,
            "statusText": "Accepted" if answer is None else "OK",
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": [],
            "content": {
                "size": len(back.encode()),
                "mimeType": "application/json",
                "text": back,
            },
            "redirectURL": "",
            "headersSize": -1,
            "bodySize": len(back.encode()),
        },
        "cache": {},
        "timings": {"send": 0, "wait": lasted, "receive": 0},
        "_session": entry.session,
        "_seq": entry.seq,
    }


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, ValueError, OSError):  # the time is outside the range of `datetime`
        return datetime.fromtimestamp(0, UTC).isoformat()
