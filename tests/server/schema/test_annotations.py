"""Tests of type annotations from several libraries."""

import re
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest
from annotated_types import Gt, Interval, Len

from fairlead.server.schema.annotations import read_notes, satisfies_limit, with_meta
from fairlead.server.schema.header_annotation import Header


class Note:
    """Stand-in for an annotation of another library."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ([], ({}, {}, {})),
        (["a", "b"], ({}, {"description": "a"}, {})),
        (["a", Gt(3)], ({"gt": 3}, {"description": "a"}, {})),
        ([Header("R"), Gt(3)], ({"gt": 3}, {}, {"x-mcp-header": "R"})),
        ([Gt(3)], ({"gt": 3}, {}, {})),
        ([Interval(ge=1, lt=5)], ({"ge": 1, "lt": 5}, {}, {})),
        ([Len(1, 3)], ({"min_length": 1, "max_length": 3}, {}, {})),
        ([Note(pattern=re.compile("a+"))], ({"pattern": "a+"}, {}, {})),
        ([Note(ge=Decimal("2"))], ({"ge": 2}, {}, {})),
        ([Note(ge=Decimal("2.5"))], ({"ge": 2.5}, {}, {})),
        ([Note(ge=lambda: 5)], ({}, {}, {})),
        ([Note(title="T", examples=[1])], ({}, {"title": "T", "examples": [1]}, {})),
        ([Note(documentation="D")], ({}, {"description": "D"}, {})),
        ([Note(description="D", documentation="E")], ({}, {"description": "D"}, {})),
        ([Note(title=5, examples=[])], ({}, {}, {})),
        ([Note(json_schema_extra={"a": 1})], ({}, {}, {"a": 1})),
        ([Note(json_schema_extra=lambda: 1)], ({}, {}, {})),
        ([Note(metadata=[Gt(1), Note(title="inner")])], ({"gt": 1}, {}, {})),
        ([Header("Region")], ({}, {}, {"x-mcp-header": "Region"})),
        ([msgspec.Meta(tz=True)], ({}, {"tz": True}, {})),
        (
            [msgspec.Meta(extra_json_schema={"a": 1}, ge=1, title="T")],
            ({"ge": 1}, {"title": "T"}, {"a": 1}),
        ),
    ],
)
def test_limits_texts_and_keywords_are_read_from_type_annotations(
    notes: list[Any], expected: Any
) -> None:
    assert read_notes(notes) == expected


def test_a_limit_that_is_not_a_number_is_rejected() -> None:
    with pytest.raises(TypeError, match="ge='x': a limit must be a number"):
        read_notes([Note(ge="x")])


def test_several_annotations_are_merged_into_one_msgspec_meta() -> None:
    assert with_meta(int, ()) is int
    noted = with_meta(int, (Gt(0), "how many", Note(json_schema_extra={"a": 1})))
    meta = msgspec.Meta(gt=0, description="how many", extra_json_schema={"a": 1})
    assert noted == Annotated[int, meta]


@pytest.mark.parametrize(
    ("name", "limit", "inside", "outside"),
    [
        ("ge", 3, 3, 2),
        ("gt", 3, 4, 3),
        ("le", 3, 3, 4),
        ("lt", 3, 2, 3),
        ("multiple_of", 3, 9, 10),
        ("min_length", 3, "abc", "ab"),
        ("max_length", 3, [1, 2, 3], [1, 2, 3, 4]),
        ("max_length", 3, 123, 1234),
        ("pattern", "b+", "abc", "ac"),
    ],
)
def test_a_value_is_checked_against_a_limit(
    name: str, limit: Any, inside: Any, outside: Any
) -> None:
    assert satisfies_limit(inside, name, limit) is True
    assert satisfies_limit(outside, name, limit) is False


def test_a_limit_on_an_optional_type_applies_to_the_value() -> None:
    noted = with_meta(int | None, (Gt(0),))
    assert msgspec.convert(None, noted) is None
    assert msgspec.convert(1, noted) == 1
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(0, noted)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [("^a+$", "aa", "ab"), (r"^(?=.*\d)\w+$", "a1", "ab"), (r"(.)\1", "abba", "abab")],
    ids=["plain", "look-ahead", "back reference"],
)
def test_a_pattern_matches_equally_in_the_linear_and_the_python_engine(
    pattern: str, inside: str, outside: str
) -> None:
    assert satisfies_limit(inside, "pattern", pattern) is True
    assert satisfies_limit(outside, "pattern", pattern) is False


def test_limits_apply_to_members_of_a_union_and_descriptions_to_the_union() -> None:
    noted = with_meta(int | None, (Gt(0), "how many"))
    (schema,), _ = msgspec.json.schema_components([noted])
    assert schema == {
        "anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}],
        "description": "how many",
    }
    assert with_meta(int | None, ("words",)).__origin__ == int | None


@pytest.mark.parametrize(
    ("limit", "expected"), [(Decimal("2.0"), int), (Decimal("2.5"), float), (3, int)]
)
def test_a_decimal_limit_becomes_a_json_number(limit: Any, expected: type) -> None:
    limits, _, _ = read_notes([Note(le=limit)])
    assert (limits, type(limits["le"])) == ({"le": limit}, expected)
