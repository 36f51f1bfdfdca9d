"""Tests of edits of encoded JSON that decode only the edited members."""

import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead.protocol.json_edit import (
    all_of,
    apply,
    each,
    each_member,
    edit_object,
    encoded,
    items_of,
    members_of,
    same_type,
    string_of,
    type_of,
    within,
    without,
    without_keys,
)


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def upper(value: Raw) -> Raw | None:
    """Convert a string to upper case, and remove null."""
    text = string_of(value)
    if bytes(value) == b"null":
        return None
    return value if text is None or text.isupper() else encoded(text.upper())


def changed(rewrite: Any, value: Any) -> Any:
    before = raw(value)
    after = rewrite(before)
    return "same" if after is before else json.loads(bytes(after))


def test_combining_no_json_edits_returns_none() -> None:
    assert all_of() is None
    assert all_of(None, None) is None
    assert edit_object(None) is None
    assert without({"a": True}) is None
    assert within("a", None) is None
    assert each(None) is None
    assert each_member(None) is None
    assert without_keys("m", {"a": True}) is None
    step = without({"a": False})
    assert all_of(None, step) is step


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1, "b": 2, "c": 3}, {"b": 2}),
        ({"a": 1}, {}),
        ({"b": 2}, "same"),
        ([1], "same"),
        ("a", "same"),
    ],
)
def test_an_edit_removes_the_given_members(value: Any, expected: Any) -> None:
    rewrite = edit_object(without({"a": False, "b": True}), without({"c": False}))
    assert changed(rewrite, value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": "x", "b": "y"}, {"a": "X", "b": "y"}),
        ({"a": "X"}, "same"),
        ({"a": None, "b": 1}, {"b": 1}),
        ({"b": "y"}, "same"),
    ],
)
def test_an_edit_can_be_applied_to_one_member_of_an_object(value: Any, expected: Any) -> None:
    assert changed(edit_object(within("a", upper)), value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["x", "Y", None, 1], ["X", "Y", 1]),
        (["X", 1], "same"),
        ([], "same"),
        ({"a": "x"}, "same"),
    ],
)
def test_an_edit_can_be_applied_to_each_item_of_a_list(value: Any, expected: Any) -> None:
    assert changed(each(upper), value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": "x", "b": None, "c": "Z"}, {"a": "X", "c": "Z"}),
        ({"a": "X"}, "same"),
        ({}, "same"),
        (["x"], "same"),
    ],
)
def test_an_edit_can_be_applied_to_each_member_of_an_object(value: Any, expected: Any) -> None:
    assert changed(each_member(upper), value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"m": {"a": 1, "b": 2}}, {"m": {"b": 2}}),
        ({"m": {"a": 1}, "n": 1}, {"n": 1}),
        ({"m": {"b": 2}}, "same"),
        ({"m": {}}, "same"),
        ({"n": 1}, "same"),
    ],
)
def test_an_edit_also_removes_a_member_that_loses_its_last_key(value: Any, expected: Any) -> None:
    assert changed(edit_object(without_keys("m", {"a": False})), value) == expected


def test_all_combined_json_edits_are_applied() -> None:
    edit = all_of(without({"a": False}), without({"b": False}))
    assert edit is not None
    members = members_of(raw({"a": 1, "b": 2, "c": 3}))
    assert members is not None
    assert edit(members) is True
    assert list(members) == ["c"]
    assert edit(members) is False


def test_reading_a_json_value_as_the_wrong_type_returns_none() -> None:
    assert members_of(None) is items_of(None) is string_of(None) is None
    assert members_of(raw([])) is None
    assert members_of(b"{") is None
    assert items_of(raw({})) is None
    assert string_of(raw(1)) is None
    assert string_of(raw("a")) == "a"
    assert type_of(raw({"type": "text"})) == "text"
    assert type_of(raw({"type": 1})) is type_of(raw([])) is type_of(raw({})) is None


def test_an_edited_value_has_the_same_type_raw_or_bytes_as_the_original() -> None:
    rewrite = edit_object(without({"a": False}))
    assert apply(rewrite, b'{"a":1}') == b"{}"
    assert type(apply(rewrite, Raw(b'{"a":1}'))) is Raw
    same = b'{"b":1}'
    assert apply(rewrite, same) is same
    assert apply(None, same) is same
    assert apply(upper, b"null") == b"null"
    assert type(same_type(b"", Raw(b"x"))) is bytes
