"""Tests of validation: problems with their fields, and strings that contain numbers."""

from typing import Any

import pytest

from fairlead.limits import EXPLAINED_VALUES, PROBLEMS
from fairlead.protocol.schema.validation import (
    COUNTED,
    UNKNOWN,
    Checker,
    FieldError,
    InvalidArguments,
    bounded,
    reasons,
)


def problems(schema: dict[str, Any], value: Any, **options: Any) -> list[tuple[str, str, Any]]:
    found = Checker(schema, **options).problems(value)
    return [(one.field, one.constraint, one.value) for one in found]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "object"}, {}, []),
        ({"type": "object"}, 1, [("arguments", '1 is not of type "object"', None)]),
        (
            {"properties": {"a": {"type": "integer"}}},
            {"a": "x"},
            [("a", '"x" is not of type "integer"', "x")],
        ),
        (
            {"properties": {"a": {"items": {"type": "integer"}}}},
            {"a": [1, "x"]},
            [("a.1", '"x" is not of type "integer"', "x")],
        ),
        ({"required": ["a"]}, {}, [("a", '"a" is a required property', None)]),
        (
            {"properties": {"a": {"required": ["b"]}}},
            {"a": {}},
            [("a.b", '"b" is a required property', None)],
        ),
        (
            {"properties": {"c": {}}, "additionalProperties": False},
            {"a": 1, "b": 2},
            [
                ("a", "Additional properties are not allowed ('a' was unexpected)", None),
                ("b", "Additional properties are not allowed ('b' was unexpected)", None),
            ],
        ),
    ],
)
def test_each_validation_problem_is_reported_with_its_field(
    schema: dict[str, Any], value: Any, expected: list[tuple[str, str, Any]]
) -> None:
    assert problems(schema, value) == expected


def test_a_problem_of_the_whole_value_is_reported_under_the_given_name() -> None:
    assert problems({"type": "object"}, 1, root="result")[0][0] == "result"


UNION = {
    "properties": {
        "a": {
            "anyOf": [
                {"type": "object", "required": ["x"]},
                {"type": "integer", "minimum": 5},
            ]
        }
    }
}


@pytest.mark.parametrize(
    ("value", "field", "text"),
    [
        ({}, "a.x", '"x" is a required property'),
        (1, "a", "1 is less than the minimum of 5"),
        ("t", "a", "\"t\" is not valid under any of the schemas listed in the 'anyOf' keyword"),
    ],
)
def test_a_union_is_explained_by_the_branch_of_the_matching_type(
    value: Any, field: str, text: str
) -> None:
    ((name, constraint, _),) = problems(UNION, {"a": value})
    assert (name, constraint) == (field, text)


# Values that are too large for an explanation


def test_invalid_members_of_a_large_value_are_listed() -> None:
    many = ["x"] * (EXPLAINED_VALUES.value + 1)
    schema = {
        "properties": {"a": {"items": {"type": "integer"}}, "b": {}, "c": {"$ref": "#/$defs/n"}},
        "required": ["d", "b"],
        "additionalProperties": False,
        "$defs": {"n": {"type": "integer"}},
    }
    value = {"a": many, "b": 1, "c": "x", "e": 1}
    assert problems(schema, value) == [
        ("d", '"d" is a required property', None),
        ("a", UNKNOWN, None),
        ("c", UNKNOWN, None),
        ("e", "Additional properties are not allowed ('e' was unexpected)", None),
    ]
    open_schema = {**schema, "additionalProperties": True, "required": "odd"}
    del open_schema["required"]
    assert [one[0] for one in problems(open_schema, value)] == ["a", "c"]


def test_a_large_value_without_invalid_members_has_one_problem() -> None:
    many = ["x"] * (EXPLAINED_VALUES.value + 1)
    assert problems({"items": {"type": "integer"}}, many) == [("arguments", UNKNOWN, None)]
    schema = {"properties": {"a": {}}, "maxProperties": 0}
    assert problems(schema, {"a": many}) == [("arguments", UNKNOWN, None)]


def test_at_most_a_thousand_problems_are_reported() -> None:
    names = {f"n{n}": 1 for n in range(COUNTED + 5)}
    assert COUNTED == 1000
    assert len(problems({"properties": {}, "additionalProperties": False}, names)) == 1000


def test_members_are_checked_until_the_maximum_number_of_problems_is_reached() -> None:
    many = ["x"] * (EXPLAINED_VALUES.value + 1)
    wrong = {f"n{n}": {"items": {"type": "integer"}} for n in range(PROBLEMS.value + 5)}
    found = problems({"properties": wrong}, dict.fromkeys(wrong, many))
    assert len(found) == PROBLEMS.value


def test_a_message_shows_at_most_twenty_problems() -> None:
    errors = [FieldError(f"f{n}", "wrong") for n in range(PROBLEMS.value)]
    assert bounded(errors) == errors
    hits = PROBLEMS.hits
    shown = bounded([*errors, *errors[:3]])
    assert (len(shown), shown[-1]) == (21, FieldError("others", "3 more problems"))
    assert PROBLEMS.hits == hits + 1
    raised = InvalidArguments(errors[:2])
    assert (str(raised), raised.errors) == ("f0: wrong; f1: wrong", errors[:2])


# Strings that contain values of other types


@pytest.mark.parametrize(
    ("wanted", "text", "value"),
    [
        ("integer", "12", 12),
        ("integer", "-12", -12),
        ("integer", "12.0", 12),
        ("integer", "1e3", 1000),
        ("integer", "12.5", "12.5"),
        ("integer", "x", "x"),
        ("integer", "1" * 400, int("1" * 400)),
        ("integer", "1" * 401, "1" * 401),
        ("integer", "\u0661", "\u0661"),
        ("number", "1.5", 1.5),
        ("number", "-1.5e2", -150.0),
        ("number", "1e999", "1e999"),
        ("number", "nan", "nan"),
        ("number", ".5", ".5"),
        ("boolean", "true", True),
        ("boolean", "TRUE", True),
        ("boolean", "1", True),
        ("boolean", "false", False),
        ("boolean", "0", False),
        ("boolean", "yes", "yes"),
        ("null", "null", "null"),
        ("array", "[]", "[]"),
    ],
)
def test_numbers_and_booleans_in_strings_are_read(wanted: str, text: str, value: Any) -> None:
    values = {"a": text}
    left = Checker({"properties": {"a": {"type": wanted}}}).coerce_strings(values)
    assert values == {"a": value}
    assert type(values["a"]) is type(value)
    assert (left == []) is (value != text)


@pytest.mark.parametrize(
    ("schema", "before", "after"),
    [
        ({"type": ["integer", "null"]}, "1", 1),
        ({"type": ["boolean", "integer"]}, "7", 7),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": [1.5]}, "1.5", 1.5),
        ({"enum": [True]}, "true", True),
        ({"enum": [1]}, "true", "true"),
        ({"enum": [True]}, "1", True),
        ({"enum": ["a"]}, "1", "1"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "1", 1),
        ({"oneOf": [{"type": "integer"}, {"type": "array"}]}, "1", 1),
        ({"anyOf": [{"type": "null"}, {"type": "array"}]}, "1", "1"),
        ({"items": {"type": "integer"}}, ["1", "x", 2], [1, "x", 2]),
        ({"properties": {"b": {"type": "integer", "minimum": 3}}}, {"b": "1"}, {"b": 1}),
        ({"type": "string"}, 1, 1),
    ],
)
def test_strings_are_converted_where_the_schema_requires_it(
    schema: dict[str, Any], before: Any, after: Any
) -> None:
    values = {"a": before}
    Checker({"properties": {"a": schema}}).coerce_strings(values)
    assert values == {"a": after}
    assert type(values["a"]) is type(after)


def test_a_string_that_is_the_whole_value_is_not_converted_to_a_number() -> None:
    left = Checker({"type": "integer"}).coerce_strings("1")  # type: ignore[arg-type]
    assert [one.field for one in left] == ["arguments"]


def test_a_converted_value_may_still_be_invalid() -> None:
    values = {"a": "1"}
    left = Checker({"properties": {"a": {"type": "integer", "minimum": 3}}}).coerce_strings(values)
    assert (values, [one.constraint for one in left]) == (
        {"a": 1},
        ["1 is less than the minimum of 3"],
    )


def test_compiling_an_invalid_schema_raises_an_error() -> None:
    with pytest.raises(ValueError, match="odd"):
        Checker({"type": "odd"}).compile()


# Exceptions raised by other libraries


@pytest.mark.parametrize(
    ("text", "name", "field", "what"),
    [
        ("wrong", "", "arguments", "wrong"),
        ("wrong", "a", "a", "wrong"),
        ("wrong - at `$.b[0].c`", "a", "a.b.0.c", "wrong"),
        ("wrong - at `$.b`", "", "b", "wrong"),
    ],
)
def test_a_path_in_the_message_of_an_exception_becomes_the_field(
    text: str, name: str, field: str, what: str
) -> None:
    assert reasons(ValueError(text), name) == [FieldError(field, what)]
    assert reasons(ValueError("x"), root="result") == [FieldError("result", "x")]


def test_each_error_of_a_pydantic_exception_is_listed() -> None:
    asked: list[dict[str, bool]] = []

    class Detailed(ValueError):
        def errors(self, **options: bool) -> list[dict[str, Any]]:
            asked.append(options)
            return [{"loc": ("b", 0), "msg": "no"}, {"loc": (), "msg": "neither"}]

    assert reasons(Detailed("x"), "a") == [FieldError("a.b.0", "no"), FieldError("a", "neither")]
    assert reasons(Detailed("x"))[1] == FieldError("arguments", "neither")
    assert asked[0] == {"include_url": False, "include_context": False, "include_input": False}
    wrapped = ValueError("y")
    wrapped.__cause__ = Detailed("x")
    assert len(reasons(wrapped)) == 2
