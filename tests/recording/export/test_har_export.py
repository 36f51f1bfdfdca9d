"""A tape as an HTTP archive: whatever is on it, other programs have to be able to read that."""

import json
from typing import Any

from msgspec import Raw

from fairlead.protocol.envelope import Direction
from fairlead.recording.export.har_export import har_text
from fairlead.recording.tape import TapeEntry, TapeInfo

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT


def said(seq: int, at: float, way: Direction, **message: Any) -> TapeEntry:
    raw = Raw(json.dumps({"jsonrpc": "2.0", **message}).encode())
    transport = {"headers": {"accept": "text/html", "x-count": 3}} if seq == 1 else None
    return TapeEntry(seq=seq, at=at, dir=way, message=raw, session="s1", transport=transport)


def test_a_tape_that_is_odd_becomes_an_archive_that_is_not() -> None:
    entries = [
        said(1, 5.0, UP, id=1, method="tools/call"),
        said(2, 6.0, UP, id=1, method="ping"),  # the same id again
        said(3, 2.0, DOWN, id=1, result={}),  # before it was asked
        said(4, 7.0, DOWN, method="notifications/message"),
    ]
    log = json.loads(b"".join(har_text(TapeInfo(name="odd", began=1.0), entries)))["log"]
    methods = [entry["comment"].split()[-1] for entry in log["entries"]]
    assert methods == ["tools/call", "ping", "notifications/message"]
    answered = [bool(entry["response"]["content"]["text"]) for entry in log["entries"]]
    assert answered == [False, True, False]
    for entry in log["entries"]:
        assert entry["time"] >= 0
        assert entry["timings"]["wait"] >= 0
        values = [header["value"] for header in entry["request"]["headers"]]
        assert values == ["text/html", "3"]
