"""Tests of reading calls and their replay steps from a tape."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead.errors import ConfigError
from fairlead.protocol.caller import SUBSCRIPTION_KEY, VERSION_KEY
from fairlead.recording.replay import load_script
from fairlead.recording.replay import script as scripts
from fairlead.recording.replay.script import ScriptedCall, read_refusal
from fairlead.wire.error_codes import INTERNAL_ERROR

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UP, DOWN = "client_to_server", "server_to_client"


def up(**message: Any) -> dict[str, Any]:
    return {"dir": UP, "message": message}


def down(related: int | None = None, **message: Any) -> dict[str, Any]:
    more = {} if related is None else {"related": related}
    return {"dir": DOWN, "message": message, **more}


def cues(path: Path, *lines: dict[str, Any], session: str | None = "s1") -> list[ScriptedCall]:
    """Return the calls on a tape whose lines are one second apart."""
    tape = path / "one.tape.jsonl"
    numbered = [
        {"seq": n, "at": float(n), "session": session} | line for n, line in enumerate(lines, 1)
    ]
    tape.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in numbered))
    return load_script(tape)


def steps(cue: ScriptedCall) -> list[tuple[str, int]]:
    return [(step.kind, step.seq) for step in cue.steps]


def test_a_response_is_a_step_of_its_request_with_the_recorded_delay(tmp_path: Path) -> None:
    first, second = cues(
        tmp_path,
        up(id=1, method="a", params={"x": 1}),
        up(id=2, method="b"),
        down(id=2, result={"n": 2}),
        down(id=1, error={"code": 1, "message": "no"}),
        down(id=1, result={}),  # a second response to the request
    )
    assert [steps(first), steps(second)] == [[("answer", 4)], [("answer", 3)]]
    assert (first.steps[0].after, second.steps[0].after) == (3.0, 1.0)
    assert (first.params, second.params) == ({"x": 1}, {})
    assert second.answer is not None
    assert second.answer.member("result") == Raw(b'{"n":2}')
    assert second.answer.member("error") is None
    assert (first.is_request, first.stateless, first.cancelled) == (True, False, None)


def test_params_that_are_not_an_object_are_read_as_empty(tmp_path: Path) -> None:
    (cue,) = cues(tmp_path, up(id=1, method="a", params=[1]))
    assert cue.params == {}


def test_notifications_are_steps_of_the_call_that_they_refer_to(tmp_path: Path) -> None:
    token = {"_meta": {"progressToken": "t"}}
    first, second = cues(
        tmp_path,
        up(id=1, method="a", params=token),
        up(id=2, method="b"),
        down(method="notifications/progress", params={"progressToken": "t"}),
        down(related=1, method="notifications/message"),
        down(method="notifications/message"),  # belongs to the latest message
        down(id=1, result={}),
        down(method="notifications/progress", params={"progressToken": "t"}),  # after the response
        down(method="notifications/progress", params={"progressToken": "other"}),
    )
    assert steps(first) == [("tell", 3), ("tell", 4), ("answer", 6), ("tell", 7)]
    assert steps(second) == [("tell", 5), ("tell", 8)]
    assert [step.related for step in first.steps] == [False, True, False, False]
    assert [step.method for step in first.steps][:2] == [
        "notifications/progress",
        "notifications/message",
    ]


def test_responses_to_server_requests_and_their_cancellations_are_steps(tmp_path: Path) -> None:
    (cue,) = cues(
        tmp_path,
        up(id=1, method="a"),
        down(id=7, method="sampling/createMessage"),
        down(id=8, method="roots/list"),
        up(id=7, result={}),
        up(id=9, result={}),  # without a request
        up(method="notifications/progress", params={"progressToken": 1}),
        down(method="notifications/cancelled", params={"requestId": 8}),
        down(method="notifications/cancelled", params={"requestId": 99}),
        down(id=1, result={}),
    )
    assert [(step.kind, step.seq, step.name) for step in cue.steps] == [
        *(("ask", 2, 7), ("ask", 3, 8), ("answered", 4, 7)),
        *(("withdraw", 7, 8), ("tell", 8, None), ("answer", 9, 1)),
    ]


def test_the_position_of_a_cancellation_is_recorded_with_its_call(tmp_path: Path) -> None:
    first, second = cues(
        tmp_path,
        up(id=1, method="a"),
        up(id=2, method="b"),
        up(method="notifications/cancelled", params={"requestId": 1}),
        up(method="notifications/cancelled", params={"requestId": 5}),
        up(method="notifications/cancelled"),
        down(id=3, method="roots/list"),  # belongs to the call that is not cancelled
    )
    assert (first.cancelled, second.cancelled) == (3, None)
    assert [steps(first), steps(second)] == [[], [("ask", 6)]]
    assert first.answer is None


@pytest.mark.parametrize(
    ("said", "of_the_first"),
    [
        ({"id": 9, "method": "roots/list"}, True),
        ({"method": "notifications/message"}, True),
        ({"method": "notifications/tools/list_changed"}, False),
    ],
    ids=["question", "log", "change"],
)
def test_list_changes_are_not_assigned_to_the_pending_request(
    tmp_path: Path, said: dict[str, Any], of_the_first: bool
) -> None:
    first, ping = cues(
        tmp_path,
        up(id=1, method="tools/call"),
        up(id=2, method="ping"),
        down(id=2, result={}),
        down(**said),
    )
    assert [len(first.steps), len(ping.steps)] == ([1, 1] if of_the_first else [0, 2])


def test_a_message_recorded_before_the_first_call_is_ignored(tmp_path: Path) -> None:
    (cue,) = cues(tmp_path, down(method="notifications/message"), up(id=1, method="a"))
    assert cue.steps == []


def test_notifications_of_a_subscription_follow_the_latest_message(tmp_path: Path) -> None:
    changed = {"_meta": {SUBSCRIPTION_KEY: 1}}
    listen, call = cues(
        tmp_path,
        up(id=1, method="subscriptions/listen", params={"_meta": {VERSION_KEY: "x"}}),
        down(method=ACKNOWLEDGED, params=changed),
        up(id=2, method="tools/call"),
        down(method="notifications/tools/list_changed", params=changed),
        down(id=2, result={}),
    )
    assert (listen.stateless, call.stateless) == (True, False)
    assert [(s.seq, s.kind, s.through) for s in listen.steps] == [(2, "tell", None)]
    assert [(s.seq, s.kind) for s in call.steps] == [(4, "tell"), (5, "answer")]
    assert call.steps[0].through is listen


def test_a_reused_id_belongs_to_the_latest_request(tmp_path: Path) -> None:
    first, second = cues(
        tmp_path, up(id=1, method="a"), up(id=1, method="b"), down(id=1, result={})
    )
    assert [steps(first), steps(second)] == [[], [("answer", 3)]]


def test_equal_ids_in_different_sessions_are_independent(tmp_path: Path) -> None:
    first, second = cues(
        tmp_path,
        {**up(id=1, method="a"), "session": "one"},
        {**up(id=1, method="b"), "session": "two"},
        {**down(id=1, result={}), "session": "one"},
        {**down(method="notifications/message"), "session": "two"},
    )
    assert (first.session, second.session) == ("one", "two")
    assert [steps(first), steps(second)] == [[("answer", 3)], [("tell", 4)]]


def test_stopped_messages_and_invalid_entries_are_skipped_in_a_replay(tmp_path: Path) -> None:
    (cue,) = cues(
        tmp_path,
        {**up(id=1, method="blocked"), "stopped": True},
        {"dir": UP, "message": "chatter"},
        up(method="notifications/initialized"),
    )
    assert (cue.seq, cue.is_request, cue.method) == (3, False, "notifications/initialized")


def test_delays_between_steps_are_never_negative(tmp_path: Path) -> None:
    (cue,) = cues(
        tmp_path, {**up(id=1, method="a"), "at": 5.0}, {**down(id=1, result={}), "at": 2.0}
    )
    assert cue.steps[0].after == 0.0


def test_the_number_of_messages_on_a_replayed_tape_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "MOST", 3)
    lines = [up(id=n, method="a") for n in range(4)]
    assert len(cues(tmp_path, *lines[:3])) == 3
    with pytest.raises(ConfigError, match="has more than 3 messages") as caught:
        cues(tmp_path, *lines)
    assert "one.tape.jsonl" in str(caught.value)


def test_a_tape_without_calls_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"one\.tape\.jsonl has no messages that can be replayed"):
        cues(tmp_path, down(method="notifications/message"))


def test_progress_is_tracked_for_pending_and_recently_answered_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "TRACKED", 2)
    ask = [up(id=n, method="a", params={"_meta": {"progressToken": n}}) for n in range(5)]
    answered = [down(id=n, result={}) for n in (0, 2)]
    late = [down(method="notifications/progress", params={"progressToken": n}) for n in range(5)]
    script = cues(tmp_path, *ask[:4], *answered, ask[4], *late)
    # Request 0 was answered long ago, so its progress is a step of the latest message.
    assert [[step.seq for step in cue.steps if step.kind == "tell"] for cue in script] == [
        *([], [9], [10], [11], [8, 12])
    ]


@pytest.mark.parametrize(
    ("raw", "code", "message", "whole"),
    [
        (b'{"code":-1,"message":"no","data":1}', -1, "no", True),
        (b'{"code":"x"}', INTERNAL_ERROR, "The recorded response cannot be decoded", False),
        (None, INTERNAL_ERROR, "The recorded response cannot be decoded", False),
    ],
)
def test_a_recorded_error_is_read_or_replaced_by_an_internal_error(
    raw: bytes | None, code: int, message: str, whole: bool
) -> None:
    given = None if raw is None else Raw(raw)
    assert read_refusal(given) == (code, message, given if whole else None)
