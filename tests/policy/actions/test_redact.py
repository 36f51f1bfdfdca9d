"""Tests of the redaction of params, results, errors and extra members in either direction."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.interceptor import Exchange
from fairlead.policy.actions import Redact
from fairlead.redaction.redact_messages import Redactor
from fairlead.redaction.redact_text import REDACTED
from tests.support.single_exchange import DOWN, UP, exchange

SECRET = {"password": "hunter2-hunter2"}
SECRET_RAW = json.dumps(SECRET, separators=(",", ":")).encode()
CLEAN = {"password": REDACTED}


def params(passed: Exchange) -> Any:
    return json.loads(bytes(passed.message.params))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("to", "way", "there", "back"),
    [
        ("client", UP, False, True),
        ("client", DOWN, True, False),
        ("server", UP, True, False),
        ("server", DOWN, False, True),
        ("both", UP, True, True),
        ("both", DOWN, True, True),
    ],
)
def test_secrets_are_redacted_in_messages_to_the_selected_side(
    to: Any, way: Any, there: bool, back: bool
) -> None:
    asked = exchange("x", SECRET, way=way)
    asked.message = msgspec.structs.replace(asked.message, extra={"token": Raw(b'"abcdef123456"')})
    redact = Redact(to=to)
    passed, after = redact.before(asked)
    assert params(passed) == (CLEAN if there else SECRET)
    extra = (passed.message.extra or {})["token"]
    assert bytes(extra) == (json.dumps(REDACTED).encode() if there else b'"abcdef123456"')
    assert asked.did == (["redacted", "redacted"] if there else None)
    assert (after is not None) is back
    members = {"password": Raw(b'"hunter2-hunter2"')}
    changed = redact.extra_members(passed, members)
    assert (changed is not members) is back
    if after is not None:
        assert json.loads(bytes(after(SECRET_RAW))) == CLEAN  # type: ignore[arg-type]
        assert {name: bytes(value) for name, value in changed.items()} == {
            "password": json.dumps(REDACTED).encode()
        }


def test_messages_without_secrets_are_forwarded_unchanged_and_without_a_note() -> None:
    asked = exchange("x", {"a": 1})
    redact = Redact(to="both")
    passed, after = redact.before(asked)
    assert passed is asked
    assert after is not None
    error = RpcError(1, "no")
    for outcome in (b'{"a":1}', Raw(b'{"a":1}'), error, None, ValueError("hunter2-hunter2")):
        assert after(outcome) is outcome
    members = {"a": Raw(b"1")}
    assert redact.extra_members(asked, members) is members
    assert not asked.did
    assert redact.before(exchange("x"))[0].message.params is msgspec.UNSET


def test_each_redacted_result_or_error_adds_one_note() -> None:
    asked = exchange("x", {})
    _, after = Redact().before(asked)
    assert after is not None
    assert json.loads(bytes(after(Raw(SECRET_RAW)))) == CLEAN  # type: ignore[arg-type]
    error = after(RpcError(5, "token=abcdef123456", {"password": "hunter2-hunter2"}))
    assert isinstance(error, RpcError)
    assert error.code == 5
    assert "abcdef123456" not in error.message
    assert b"hunter2" not in (error.raw or b"hunter2")
    assert asked.did == ["redacted", "redacted"]


@pytest.mark.parametrize(
    ("options", "member", "kept"),
    [
        ({}, "note", True),
        ({"names": ["note"]}, "note", False),
        ({"keep": ["password"]}, "password", True),
        ({"patterns": ["hun[a-z]+2-[a-z0-9]+"]}, "note", False),
        ({"values": ["hunter2-hunter2"]}, "note", False),
        ({"known": Redactor(values=["hunter2-hunter2"])}, "note", False),
    ],
    ids=["nothing", "names", "keep", "patterns", "values", "known"],
)
def test_secrets_can_be_configured_by_name_pattern_or_value(
    options: Any, member: str, kept: bool
) -> None:
    passed, _ = Redact(to="server", **options).before(exchange("x", {member: "hunter2-hunter2"}))
    assert ("hunter2" in str(params(passed))) is kept
