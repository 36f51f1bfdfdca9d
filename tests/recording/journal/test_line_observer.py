"""Tests of matching responses with requests in observed lines."""

import json
from typing import Any

import pytest

from fairlead.protocol.envelope import Direction
from fairlead.recording.journal import Journal, LineObserver
from fairlead.recording.journal import line_observer as observers
from fairlead.recording.journal.journal_record import (
    IN_USE,
    NOT_A_MESSAGE,
    TOO_LONG,
    UNMATCHED,
)

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT


def observe(*said: tuple[Direction, dict[str, Any]]) -> Journal:
    journal = Journal()
    observer = LineObserver(journal, "s1")
    for way, message in said:
        assert observer.receive_bytes(json.dumps(message).encode(), way)
    return journal


def states(journal: Journal) -> list[tuple[str, str]]:
    return [(one.kind, one.state) for one in journal.records()]


ASK = {"id": 1, "method": "tools/call", "params": {"name": "add"}}


GONE = "notifications/cancelled"


@pytest.mark.parametrize(
    ("way", "answer", "state", "code", "error"),
    [
        (DOWN, {"id": 1, "result": {}}, "ok", None, None),
        (DOWN, {"id": 1, "error": {"code": 5, "message": "no"}}, "refused", 5, "no"),
        (DOWN, {"id": 1, "error": {"message": "no"}}, "refused", None, "no"),
        (DOWN, {"id": 1, "error": 7}, "refused", None, "an error that cannot be decoded"),
        (DOWN, {"id": 1, "result": {"isError": True}}, "failed", None, None),
        (UP, {"method": GONE, "params": {"requestId": 1}}, "cancelled", None, None),
        (UP, {"method": GONE, "params": {"requestId": 2}}, "pending", None, None),
        (UP, {"method": GONE, "params": 5}, "pending", None, None),
        (UP, {"method": GONE}, "pending", None, None),
        (UP, {"method": "notifications/x", "params": {"requestId": 1}}, "pending", None, None),
        (DOWN, {"method": GONE, "params": {"requestId": 1}}, "pending", None, None),
    ],
)
def test_the_response_to_a_request_determines_its_outcome(
    way: Direction, answer: dict[str, Any], state: str, code: int | None, error: str | None
) -> None:
    first, *rest = observe((UP, ASK), (way, answer)).records()
    assert (first.state, first.code, first.error) == (state, code, error)
    assert (first.kind, first.method, first.target, first.session, first.request_id) == (
        *("request", "tools/call", "add", "s1", 1),
    )
    assert [(one.kind, one.state, one.request_id) for one in rest] == (
        [("notification", "passed", None)] if "method" in answer else []
    )


def test_a_late_response_to_a_cancelled_request_is_not_flagged() -> None:
    gone = {"method": GONE, "params": {"requestId": 1}}
    journal = observe((UP, ASK), (UP, gone), (DOWN, {"id": 1, "result": {}}))
    assert states(journal) == [("request", "cancelled"), ("notification", "passed")]


@pytest.mark.parametrize(
    ("answer", "state", "shown"),
    [
        ({"id": 2, "result": {}}, "ok", 2),
        ({"id": "1", "result": {}}, "ok", "1"),
        ({"id": None, "error": {"code": 1, "message": "x"}}, "refused", None),
        ({"result": {}}, "ok", None),
    ],
)
def test_a_response_to_an_unknown_id_is_recorded_separately(
    answer: dict[str, Any], state: str, shown: Any
) -> None:
    asked, stray = observe((UP, ASK), (DOWN, answer)).records()
    assert asked.state == "pending"
    assert (stray.kind, stray.state, stray.flags) == ("answer", state, (UNMATCHED,))
    assert (stray.dir, stray.request_id, stray.session) == (DOWN, shown, "s1")


def test_equal_ids_of_client_and_server_requests_are_distinguished() -> None:
    journal = observe((UP, ASK), (DOWN, {"id": 1, "method": "ping"}), (UP, {"id": 1, "result": {}}))
    assert [(one.dir, one.state) for one in journal.records()] == [(UP, "pending"), (DOWN, "ok")]


def test_requests_with_the_same_id_are_answered_in_order() -> None:
    journal = observe(
        (UP, {"id": 1, "method": "a"}),
        (UP, {"id": 1, "method": "b"}),
        (DOWN, {"id": 1, "error": {"code": 1, "message": "x"}}),
        (DOWN, {"id": 1, "result": {}}),
    )
    assert [(one.method, one.state, one.flags) for one in journal.records()] == [
        ("a", "refused", ()),
        ("b", "ok", (IN_USE,)),
    ]


def test_a_response_is_matched_even_if_its_id_has_an_invalid_type() -> None:
    journal = observe((UP, {"id": [1], "method": "a"}), (DOWN, {"id": [1], "result": {}}))
    assert states(journal) == [("request", "ok")]


@pytest.mark.parametrize(("asked", "lost"), [(3, []), (4, [0]), (5, [0, 1])])
def test_at_the_limit_the_oldest_pending_request_is_recorded_as_lost(
    monkeypatch: pytest.MonkeyPatch, asked: int, lost: list[int]
) -> None:
    monkeypatch.setattr(observers, "MAX_ASKED", 3)
    journal = observe(*[(UP, {"id": n, "method": "a"}) for n in range(asked)])
    assert [one.request_id for one in journal.records() if one.state == "lost"] == lost


@pytest.mark.parametrize(("asked", "lost"), [(2, 0), (3, 3)])
def test_the_number_of_pending_requests_with_the_same_id_is_limited(
    monkeypatch: pytest.MonkeyPatch, asked: int, lost: int
) -> None:
    monkeypatch.setattr(observers, "MAX_SAME", 2)
    other = (UP, {"id": "other", "method": "a"})
    journal = observe(other, *[(UP, {"id": 1, "method": "a"}) for _ in range(asked)])
    assert [one.request_id for one in journal.records() if one.state == "lost"] == [1] * lost


def test_pending_requests_are_recorded_as_lost_when_the_conversation_ends() -> None:
    journal = Journal()
    observer = LineObserver(journal)
    observer.receive_bytes(b'{"id":1,"method":"a"}', UP)
    observer.receive_bytes(b'{"id":1,"method":"b"}', DOWN)
    observer.ended()
    assert [(one.state, one.error) for one in journal.records()] == [
        ("lost", "the conversation ended before a response")
    ] * 2
    observer.receive_bytes(b'{"id":1,"result":{}}', DOWN)
    assert journal.records()[-1].flags == (UNMATCHED,)


@pytest.mark.parametrize(
    ("line", "good", "kinds"),
    [
        (b'[{"id":1,"method":"a"},{"method":"b"}]', True, ["request", "notification"]),
        (b'[{"id":1,"method":"a"},{"x":1}]', False, ["request", "stray"]),
        (b"[1]", False, ["stray"]),
        (b"[", False, ["stray"]),
        (b'{"level":"info"}', False, ["stray"]),
        (b"{", False, ["stray"]),
        (b"", False, ["stray"]),
    ],
)
def test_a_batch_is_split_and_lines_that_are_not_messages_are_flagged(
    line: bytes, good: bool, kinds: list[str]
) -> None:
    journal = Journal()
    assert LineObserver(journal, "s1").receive_bytes(line, DOWN) is good
    records = journal.records()
    assert [one.kind for one in records] == kinds
    strays = [one for one in records if one.kind == "stray"]
    assert all(
        (one.flags, one.state, one.session) == ((NOT_A_MESSAGE,), "passed", "s1") for one in strays
    )
    if len(kinds) == 1:
        assert (strays[0].text, strays[0].size) == (line.decode(), len(line))


def test_only_the_size_of_a_line_that_is_too_long_is_kept() -> None:
    journal = Journal()
    LineObserver(journal).too_long(5000, UP)
    (record,) = journal.records()
    assert (record.size, record.text, record.flags) == (5000, "", (TOO_LONG,))
