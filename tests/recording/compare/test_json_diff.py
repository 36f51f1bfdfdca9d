"""Tests of differences between JSON values, and of ignored paths."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.recording.compare.json_diff import ABSENT, JsonDifference, json_differences, read_path

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
)


def found(recorded: Any, given_: Any, *ignore: str) -> list[str]:
    paths = [read_path(text) for text in ignore]
    return [one.path for one in json_differences(recorded, given_, paths)]


@given(values)
def test_a_value_does_not_differ_from_itself(value: Any) -> None:
    assert list(json_differences(value, value)) == []


def test_a_json_difference_has_the_path_and_both_values() -> None:
    recorded = {"a": [1, {"b": 2}], "c": 1, "d": True}
    given_ = {"a": [1, {"b": 3}, 4], "d": 1, "e": None}
    assert list(json_differences(recorded, given_)) == [
        JsonDifference("a.1.b", 2, 3),
        JsonDifference("a.2", ABSENT, 4),
        JsonDifference("c", 1, ABSENT),
        JsonDifference("d", True, 1),
        JsonDifference("e", ABSENT, None),
    ]


def test_ignored_paths_hide_differences_and_must_not_have_empty_segments() -> None:
    one = {"content": [{"text": "a", "at": 1}, {"text": "b", "at": 2}], "at": 3}
    two = {"content": [{"text": "x", "at": 4}, {"text": "y", "at": 5}], "at": 6}
    assert found(one, two, "content.*.text", "at") == ["content.0.at", "content.1.at"]
    assert found(one, two, "content[0].text", "**.at") == ["content.1.text"]
    assert found(one, two, "content", "at") == []
    assert found(one, two, "**") == []
    for wrong in ("", "a..b", "."):
        with pytest.raises(ValueError, match="a segment is empty"):
            read_path(wrong)


def test_a_redacted_value_matches_any_value() -> None:
    assert found({"a": "[REDACTED]"}, {"a": {"b": 1}}) == []
    assert found({"a": "Bearer [REDACTED]!"}, {"a": "Bearer x\ny!"}) == []
    assert found({"a": "Bearer [REDACTED]!"}, {"a": "Basic x!"}) == ["a"]


def deep(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def test_values_below_200_levels_are_compared_as_a_whole() -> None:
    assert list(json_differences(deep(250, 1), deep(250, 1))) == []
    (one,) = json_differences(deep(250, 1), deep(250, 2))
    assert one.path == ".".join(["0"] * 200)
    assert (one.recorded, one.given) == ("(nested too deeply)", "(nested too deeply)")
    (one,) = json_differences(deep(199, 1), deep(199, 2))
    assert (one.path, one.recorded, one.given) == (".".join(["0"] * 199), 1, 2)
