"""Tests of the identities by which recorded requests are matched."""

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.recording.replay.request_identity import RequestIdentity, digest
from fairlead.redaction.redact_text import REDACTED


def identity(params: dict[str, Any], method: str = "tools/call", *, request: bool = True) -> Any:
    raw = Raw(json.dumps(params).encode())
    return RequestIdentity.of(method, params, request=request, raw=raw)


def test_equal_requests_have_the_same_identity() -> None:
    one = identity({"name": "a", "arguments": {"x": 1, "y": 2}})
    assert identity({"arguments": {"y": 2, "x": 1}, "name": "a"}) == one
    assert identity({"name": "a", "arguments": {"x": 1, "y": 2}, "_meta": {"k": 1}}) == one
    assert one.said == one.target
    assert one.params is None
    for other in (
        identity({"name": "b", "arguments": {"x": 1, "y": 2}}),
        identity({"name": "a", "arguments": {"x": 1, "y": 3}}),
        identity({"name": "a", "arguments": {"x": 1, "y": 2}}, "prompts/get"),
        identity({"name": "a", "arguments": {"x": 1, "y": 2}}, request=False),
    ):
        assert other.said != one.said


def test_different_requests_with_the_same_target_have_different_identities() -> None:
    one, other = identity({"name": "a", "extra": 1}), identity({"name": "a", "extra": 2})
    assert one.said != other.said
    assert one.target == other.target != one.said
    assert one.target == identity({"name": "a"}).said


@pytest.mark.parametrize(("size", "kept"), [(2048, True), (2049, False)])
def test_a_redacted_request_has_no_digest(size: int, kept: bool) -> None:
    params = {"name": REDACTED, "x": ""}
    params["x"] = "y" * (size - len(json.dumps(params).encode()))
    one = identity(params)
    assert (one.said, one.target) == (None, None)
    assert one.params == (params if kept else None)


def test_a_request_without_params_has_an_identity() -> None:
    one = RequestIdentity.of("ping", {}, request=True, raw=UNSET)
    assert one.said == digest("ping", {}, request=True)


def test_params_that_cannot_be_encoded_have_no_digest() -> None:
    assert digest("x", {"a": "\ud800"}, request=True) is None
    assert len(digest("x", {}, request=True) or b"") == 16
