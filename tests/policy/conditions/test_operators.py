"""Tests of condition operators: matches and invalid operands."""

import datetime
from typing import Any

import pytest

from fairlead.policy.conditions.operators import (
    OPERATORS,
    InvalidTest,
    compare,
    find,
    is_test,
    name_test,
    value_test,
)

HOLDS: list[tuple[str, Any, list[Any], list[Any]]] = [
    ("equals", 1, [1, 1.0], [2, "1", True, None]),
    ("equals", True, [True], [1, "true", False]),
    ("equals", [1], [[1]], [1, [2]]),
    ("not", 1, [2, "1", True], [1, 1.0]),
    ("in", [1, "a"], [1, "a"], [2, True, "b"]),
    ("not_in", [1, "a"], [2, True, "b"], [1, "a"]),
    ("like", "read_*", ["read_", "read_x"], ["xread_", "READ_x", 1]),
    ("like", "read", ["read"], ["read_x", ["read"]]),
    ("like", "a?c", ["abc"], ["ac", "abbc"]),
    ("like", "a[bc]", ["ab", "ac"], ["ad", "a[bc]"]),
    ("not_like", "read_*", ["write", 1], ["read_x"]),
    ("matches", "^a+$", ["a", "aa"], ["b", "ab", 1]),
    ("not_matches", "^a+$", ["b", 1], ["a"]),
    ("contains", "b", ["abc", ["b"], {"b": 1}], ["ac", ["bc"], {"a": "b"}, 1]),
    ("contains", 1, [[1], [2, 1]], ["1", [True], {"1": 1}, [2], 1]),
    ("exists", True, [1, False, "", 0], [None]),
    ("exists", False, [None], [1, False, ""]),
    ("greater", 1, [2, 1.5], [1, 0, "2", True, None]),
    ("greater", "b", ["c", "ba"], ["b", "a", 3]),
    ("at_least", 1, [1, 2], [0.5, "1", True]),
    ("less", 1, [0, -1.5], [1, 2, "0", False]),
    ("at_most", 1, [1, 0], [1.5, "1", False]),
]


@pytest.mark.parametrize(
    ("operator", "wanted", "good", "bad"), HOLDS, ids=[f"{one[0]}-{one[1]}" for one in HOLDS]
)
def test_operators_match_only_values_that_fulfil_the_condition(
    operator: str, wanted: Any, good: list[Any], bad: list[Any]
) -> None:
    test = compare({operator: wanted})
    assert [test([value]) for value in good] == [True] * len(good)
    assert [test([value]) for value in bad] == [False] * len(bad)


def test_every_operator_has_test_values() -> None:
    assert {one[0] for one in HOLDS} == OPERATORS.keys()


@pytest.mark.parametrize(
    ("operator", "wanted", "values", "expected"),
    [
        ("equals", 1, [2, 1], True),
        ("equals", 1, [], False),
        ("not", 1, [2, 1], False),
        ("not", 1, [], True),
        ("not_in", [1], [], True),
        ("exists", True, [None, 1], True),
        ("exists", True, [], False),
        ("exists", False, [], True),
        ("exists", False, [None, 1], False),
        ("greater", 1, [0, 2], True),
    ],
)
def test_an_operator_needs_one_matching_value_and_its_negation_needs_none(
    operator: str, wanted: Any, values: list[Any], expected: bool
) -> None:
    assert compare({operator: wanted})(values) is expected


def test_all_operators_in_a_map_must_match() -> None:
    test = compare({"at_least": 1, "less": 3})
    assert [test([value]) for value in (0, 1, 2, 3)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("operators", "text", "operator"),
    [
        (
            {},
            "expected an operator: at_least, at_most, contains, equals, exists, greater, in, "
            "less, like, matches, not, not_in, not_like, not_matches",
            None,
        ),
        ({"odd": 1}, "", "odd"),
        ({"like": 1}, "`like`: expected a pattern such as `read_*`", None),
        ({"matches": 1}, "`matches`: expected a regular expression", None),
        ({"in": 1}, "`in`: expected a list", None),
        ({"not_in": "a"}, "`not_in`: expected a list", None),
        ({"exists": 1}, "`exists`: expected true or false", None),
        ({"greater": True}, "`greater`: expected a number or a string", None),
        ({"less": [1]}, "`less`: expected a number or a string", None),
        (
            {"equals": datetime.date(2026, 1, 1)},
            "`equals`: a date must be a string in quotes: JSON has no dates",
            None,
        ),
        (
            {"in": ["a", datetime.time(1)]},
            "`in`: a date must be a string in quotes: JSON has no dates",
            None,
        ),
    ],
)
def test_unknown_operators_and_invalid_operands_are_rejected(
    operators: dict[str, Any], text: str, operator: str | None
) -> None:
    with pytest.raises(InvalidTest) as refused:
        compare(operators)
    assert (str(refused.value), refused.value.operator) == (text, operator)


def test_an_invalid_regular_expression_is_rejected() -> None:
    with pytest.raises(InvalidTest, match="^`matches`: "):
        compare({"matches": "("})


@pytest.mark.parametrize(
    ("wanted", "good", "bad"),
    [
        ("read_*", "read_x", "write"),
        (["a", "b*"], "bb", "c"),
        (["a", "b*"], "a", "aa"),
        ({"not": "a"}, "b", "a"),
    ],
)
def test_a_name_test_may_be_a_pattern_a_list_or_a_map_of_operators(
    wanted: Any, good: str, bad: str
) -> None:
    assert (name_test(wanted)([good]), name_test(wanted)([bad])) == (True, False)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ([], "expected a list of strings"),
        (["a", 1], "expected a list of strings"),
        (1, "expected a string, a list of strings or a map of operators"),
    ],
)
def test_a_name_test_is_a_string_a_list_of_strings_or_a_map(wanted: Any, text: str) -> None:
    with pytest.raises(InvalidTest) as refused:
        name_test(wanted)
    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("wanted", "good", "bad"),
    [(1, 1, 2), ("a*", "a*", "ab"), ([1, 2], 2, 3), ({"less": 1}, 0, 1)],
)
def test_a_plain_value_matches_only_equal_values(wanted: Any, good: Any, bad: Any) -> None:
    assert (value_test(wanted)([good]), value_test(wanted)([bad])) == (True, False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [({"equals": 1}, True), ({"equals": 1, "x": 1}, False), ({}, False), ("equals", False)],
)
def test_a_map_with_keys_that_are_not_operators_is_not_an_operator_test(
    value: Any, expected: bool
) -> None:
    assert is_test(value) is expected


@pytest.mark.parametrize(
    ("value", "path", "found"),
    [
        ({"a": {"b": 1}}, "a.b", [1]),
        ({"a": {"b": 1}}, "a", [{"b": 1}]),
        ({"a": {"b": 1}}, "a.c", []),
        ({"a": [1, 2]}, "a.*", [1, 2]),
        ({"a": [1, 2]}, "a.1", [2]),
        ({"a": [1, 2]}, "a.2", []),
        ({"a": [1, 2]}, "a.x", []),
        ({"a": {"x": 1, "y": 2}}, "a.*", [1, 2]),
        ({"a": {"*": 1, "y": 2}}, "a.*", [1]),
        ({"a": [{"b": 1}, {"b": 2}, {}]}, "a.*.b", [1, 2]),
        ({"a": {"b.c": 1}}, "a.b.c", [1]),
        ({"a": {"b": {"d": 2}, "b.c": 1}}, "a.b.c", []),
        ({"a": 1}, "a.b", []),
        ([{"a": 1}], "0.a", [1]),
    ],
)
def test_all_values_at_a_path_in_a_message_are_found(
    value: Any, path: str, found: list[Any]
) -> None:
    assert find(value, tuple(path.split("."))) == found
