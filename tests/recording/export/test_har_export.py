"""Tests of the export of tapes to HTTP archives."""

import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead.protocol.envelope import Direction
from fairlead.recording.export import har_export
from fairlead.recording.export.har_export import har_text
from fairlead.recording.tape import TapeEntry, TapeInfo

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT


def said(seq: int, at: float, way: Direction, **message: Any) -> TapeEntry:
    raw = Raw(json.dumps({"jsonrpc": "2.0", **message}).encode())
    transport = {"headers": {"accept": "text/html", "x-count": 3}} if seq == 1 else None
    return TapeEntry(seq=seq, at=at, dir=way, message=raw, session="s1", transport=transport)


def test_the_archive_of_a_tape_with_reused_ids_and_unordered_times_is_valid() -> None:
    entries = [
        said(1, 5.0, UP, id=1, method="tools/call"),
        said(2, 6.0, UP, id=1, method="ping"),  # reuses the id
        said(3, 2.0, DOWN, id=1, result={}),  # has an earlier time than its request
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


def archive(info: TapeInfo, *entries: TapeEntry) -> dict[str, Any]:
    return dict(json.loads(b"".join(har_text(info, entries)))["log"])


def test_an_archive_entry_has_a_request_a_response_and_a_duration() -> None:
    info = TapeInfo(began=10.0, fairlead="1.2", about={"url": "https://x.example/mcp"})
    log = archive(
        info,
        said(1, 1.0, UP, id=1, method="ä"),
        said(2, 1.5, DOWN, id=2, result={}),  # without a request
        said(3, 1.25, DOWN, id=1, result={}),
        said(4, 2.0, UP, method="notifications/x"),
    )
    assert log["creator"] == {"name": "fairlead", "version": "1.2"}
    call, note = log["entries"]
    assert (call["_seq"], call["_session"], call["comment"]) == (1, "s1", "client_to_server ä")
    assert call["startedDateTime"] == "1970-01-01T00:00:11+00:00"
    assert (call["time"], call["timings"]) == (250.0, {"send": 0, "wait": 250.0, "receive": 0})
    request, response = call["request"], call["response"]
    assert (request["method"], request["url"]) == ("POST", "https://x.example/mcp")
    assert request["bodySize"] == len(request["postData"]["text"].encode())
    assert (request["headersSize"], response["headersSize"]) == (-1, -1)
    assert (response["status"], response["statusText"]) == (200, "OK")
    text = response["content"]["text"]
    assert json.loads(text)["result"] == {}
    assert response["bodySize"] == response["content"]["size"] == len(text)
    response = note["response"]
    assert (note["_seq"], note["time"]) == (4, 0.0)
    assert (response["status"], response["statusText"]) == (202, "Accepted")
    assert (response["bodySize"], response["content"]["text"]) == (0, "")


def test_values_missing_on_a_tape_have_defaults_in_the_archive() -> None:
    log = archive(TapeInfo(began=1e300), said(2, 0.0, UP, id=1, method="a"))
    assert log["creator"]["version"] == "0"
    (call,) = log["entries"]
    assert call["request"]["url"] == "http://localhost/mcp"
    assert call["request"]["headers"] == []
    assert call["startedDateTime"] == "1970-01-01T00:00:00+00:00"


def test_an_archive_entry_has_the_http_headers_of_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(har_export, "SESSIONS", 2)

    def call(session: str, *, known: bool) -> TapeEntry:
        message = Raw(b'{"method":"x"}')
        transport = {"headers": {"s": session}} if known else {"other": 1}
        return TapeEntry(
            seq=1, at=0.0, dir=UP, message=message, session=session, transport=transport
        )

    entries = [call(one, known=True) for one in "abc"] + [call(one, known=False) for one in "abc"]
    found = [one["request"]["headers"] for one in archive(TapeInfo(), *entries)["entries"]]
    named = [[{"name": "s", "value": one}] for one in "abc"]
    assert found == [*named, [], *named[1:]]
