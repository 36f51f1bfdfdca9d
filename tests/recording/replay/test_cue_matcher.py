"""Tests of tolerant and strict matching of client messages with a tape."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.recording.replay import load_script
from fairlead.recording.replay.cue_matcher import StrictMatcher, TolerantMatcher
from fairlead.recording.replay.script import ScriptedCall
from fairlead.redaction.redact_text import REDACTED

LISTEN = "subscriptions/listen"


def call(name: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "tools/call", {"name": name, **more}


def script(
    path: Path, *said: tuple[str, dict[str, Any]], notes: bool = False
) -> list[ScriptedCall]:
    """Return the calls on a tape with these client messages, numbered from 1."""
    lines = []
    for n, (method, params) in enumerate(said, 1):
        message = {"method": method, "params": params} | ({} if notes else {"id": n})
        line = {"seq": n, "at": n, "dir": "client_to_server", "session": "s", "message": message}
        lines.append(msgspec.json.encode(line) + b"\n")
    tape = path / "one.tape.jsonl"
    tape.write_bytes(b"".join(lines))
    return load_script(tape)


def found(
    matcher: StrictMatcher | TolerantMatcher,
    method: str,
    params: dict[str, Any],
    *,
    request: bool = True,
) -> int | None:
    cue = matcher.find(method, params, request=request)
    return None if cue is None else cue.seq


HIDDEN = {"name": "login", "arguments": {"password": REDACTED}}


@pytest.mark.parametrize(
    ("method", "params", "seq"),
    [
        (*call("a", arguments={"x": 1}), 1),
        (*call("a", arguments={"x": 2}), 2),
        (*call("a", arguments={"x": 1}, _meta={"progressToken": 5}), 1),
        (*call("a", arguments={"x": 1}, extra=True), 1),  # the same target
        (*call("a", arguments={"x": 3}), None),
        (*call("b", arguments={"x": 1}), None),
        ("prompts/get", {"name": "a", "arguments": {"x": 1}}, None),
        # The password is redacted on the tape.
        (*call("login", arguments={"password": "anything"}), 3),
        (*call("login", arguments={"password": "anything"}, extra=True), 3),
        (*call("login", arguments={"user": "x"}), None),
        ("initialize", {"clientInfo": {"name": "another"}}, 4),
        ("server/discover", {"_meta": {"x": 1}}, 5),
        (LISTEN, {"notifications": {"promptsListChanged": True}}, 6),
        (LISTEN, {"notifications": {"toolsListChanged": True}}, 6),
        ("ping", {"name": "a"}, None),
    ],
)
def test_a_tolerant_matcher_finds_a_call_by_method_target_and_arguments(
    tmp_path: Path, method: str, params: dict[str, Any], seq: int | None
) -> None:
    cues = script(
        tmp_path,
        call("a", arguments={"x": 1}),
        call("a", arguments={"x": 2}),
        ("tools/call", HIDDEN),
        ("initialize", {"clientInfo": {"name": "one"}}),
        ("server/discover", {}),
        (LISTEN, {"notifications": {"toolsListChanged": True}}),
    )
    matcher = TolerantMatcher(cues)
    assert matcher.expected() is None
    assert found(matcher, method, params, request=False) is None
    assert found(matcher, method, params) == seq
    assert found(matcher, method, params) == seq  # repeatedly


@pytest.mark.parametrize(
    ("method", "params"),
    [
        call("a"),
        ("tools/call", HIDDEN),
        ("initialize", {}),
        (LISTEN, {"notifications": {"x": True}}),
    ],
    ids=["plain", "without its secret", "introduction", "subscription"],
)
def test_repeated_calls_match_the_recorded_calls_in_turn_and_then_the_last_one(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    matcher = TolerantMatcher(script(tmp_path, (method, params), call("z"), (method, params)))
    assert [found(matcher, method, params) for _ in range(4)] == [1, 3, 3, 3]
    matcher.seek(1)
    assert [found(matcher, method, params) for _ in range(3)] == [1, 3, 3]
    matcher.seek(2)  # earlier calls are treated as used
    assert [found(matcher, method, params) for _ in range(2)] == [3, 3]
    matcher.seek(3)
    assert found(matcher, method, params) == 3


def test_redacted_calls_are_matched_in_the_order_of_the_tape(tmp_path: Path) -> None:
    plain = call("login", arguments={"password": "x"})
    matcher = TolerantMatcher(script(tmp_path, ("tools/call", HIDDEN), plain))
    assert [found(matcher, *plain) for _ in range(3)] == [1, 2, 2]


def test_a_request_does_not_match_a_recorded_notification(tmp_path: Path) -> None:
    cues = script(tmp_path, ("notifications/x", {"a": 1}), ("notifications/x", HIDDEN), notes=True)
    matcher = TolerantMatcher(cues)
    assert found(matcher, "notifications/x", {"a": 1}) is None
    assert found(matcher, "notifications/x", {"a": 1}, request=False) == 1
    secret = {"name": "login", "arguments": {"password": "y"}}
    assert found(matcher, "notifications/x", secret) is None
    assert found(matcher, "notifications/x", secret, request=False) == 2
    strict = StrictMatcher(cues)
    assert found(strict, "notifications/x", {"a": 1}) is None
    assert found(strict, "notifications/x", {"a": 1}, request=False) == 1


def test_a_strict_matcher_requires_the_order_and_the_params_of_the_tape(tmp_path: Path) -> None:
    cues = script(
        tmp_path,
        ("initialize", {"clientInfo": {"name": "one"}}),
        call("a", arguments={"x": 1}),
        ("tools/call", HIDDEN),
        call("b"),
    )
    matcher = StrictMatcher(cues)
    assert matcher.expected() == "initialize"
    assert found(matcher, *call("a", arguments={"x": 1})) is None  # not yet expected
    assert found(matcher, "initialize", {"clientInfo": {"name": "another"}}) == 1
    assert matcher.expected() == "tools/call a"
    # The matcher still expects the recorded call.
    assert found(matcher, *call("a", arguments={"x": 2})) is None
    assert found(matcher, *call("a", arguments={"x": 1}, extra=1)) is None
    # Accepted again, because relays send their own `initialize`.
    assert found(matcher, "initialize", {}) == 1
    assert [cue.used for cue in cues] == [True, False, False, False]
    assert found(matcher, *call("a", arguments={"x": 1}, _meta={"y": 1})) == 2
    assert found(matcher, *call("login", arguments={"password": 1}, more=1)) is None
    assert found(matcher, *call("login", arguments={"password": 1})) == 3
    assert found(matcher, *call("b")) == 4
    assert matcher.expected() == "the end of the tape"
    assert found(matcher, *call("b")) is None
    assert found(matcher, "ping", {}) is None
    assert [cue.used for cue in cues] == [True] * 4


@pytest.mark.parametrize(
    ("seq", "expected"),
    [(0, "tools/call a"), (1, "tools/call a"), (2, "tools/call b"), (3, "the end of the tape")],
)
def test_a_strict_matcher_can_continue_at_any_entry(
    tmp_path: Path, seq: int, expected: str
) -> None:
    matcher = StrictMatcher(script(tmp_path, call("a"), call("b")))
    matcher.seek(seq)
    assert matcher.expected() == expected
