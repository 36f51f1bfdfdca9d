"""Tests of summaries of recorded messages."""

from typing import Any

import pytest

from fairlead.recording.tape.message_summary import message_heading, summary_of
from tests.support.tape_entries import entry


@pytest.mark.parametrize(
    ("message", "summary"),
    [
        ({"method": "tools/call", "id": 1, "params": {"name": "add"}}, "tools/call add"),
        ({"method": "resources/read", "id": 1, "params": {"uri": "a://b"}}, "resources/read a://b"),
        ({"method": "x", "params": {"name": 5, "uri": "a://b"}}, "x"),
        ({"method": "x", "params": [1]}, "x"),
        ({"method": "x"}, "x"),
        ({"id": 1, "result": {}}, "result"),
        ({"id": 1, "error": {"code": -3, "message": "no"}}, "error -3: no"),
        ({"id": 1, "error": "odd"}, "error None: None"),
        ({"id": 1}, "no message"),
        (b"[1]", "no message"),
    ],
)
def test_a_summary_shows_the_method_and_target_or_the_outcome_of_a_message(
    message: Any, summary: str
) -> None:
    assert summary_of(message_heading(entry(message))) == summary


def test_message_heading_distinguishes_requests_and_ignores_invalid_ids() -> None:
    request = message_heading(entry({"method": "m", "id": "7", "params": {"a": 1}}))
    assert (request.is_request, request.name, request.read_params()) == (True, "7", {"a": 1})
    note = message_heading(entry({"method": "m", "params": [1]}))
    assert (note.is_request, note.name, note.read_params()) == (False, None, {})
    answer = message_heading(entry({"id": 1.5, "result": {}}))
    assert (answer.is_request, answer.name, answer.read_error()) == (False, None, {})
