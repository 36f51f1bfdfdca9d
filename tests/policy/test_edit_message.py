"""Tests of copies of an exchange with changed params."""

import json
from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.policy.edit_message import error_json, with_params, with_whole_params
from tests.support.single_exchange import exchange


@pytest.mark.parametrize(
    ("before", "members", "after"),
    [
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        (None, {"b": 3}, {"b": 3}),
        ([1], {"b": 3}, {"b": 3}),
        ({"name": "x"}, {"name": "y"}, {"name": "y"}),
    ],
)
def test_replacing_some_params_keeps_the_others(before: Any, members: Any, after: Any) -> None:
    old = exchange("tools/call", before)
    old.displayed = "shown"
    new = with_params(old, **members)
    assert json.loads(bytes(new.message.params)) == after  # type: ignore[arg-type]
    assert new.displayed == (None if "name" in members else "shown")
    new.note("told")
    assert old.did == ["told"]  # both copies share their notes


def test_replacing_params_also_replaces_the_cached_head() -> None:
    old = exchange("tools/call", {"name": "x"})
    old.note("before")
    new = with_whole_params(old, exchange("tools/call", {"name": "y"}).message.params)
    assert (old.head.name, new.head.name) == ("x", "y")
    assert new.did is old.did


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (RpcError(1, "no"), {"code": 1, "message": "no"}),
        (RpcError(1, "no", {"x": 1}), {"code": 1, "message": "no", "data": {"x": 1}}),
        (RpcError(1, "no", raw=b'{"odd":true}'), {"odd": True}),
    ],
    ids=["plain", "with data", "as it came"],
)
def test_an_error_from_a_peer_is_encoded_with_its_original_members(
    error: RpcError, shown: Any
) -> None:
    assert json.loads(error_json(error)) == shown
