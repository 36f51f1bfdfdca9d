"""Tests of the fields of classes that become JSON objects."""

import dataclasses
from typing import Annotated, Any, NotRequired, Required, TypedDict

import msgspec
import pytest

from fairlead.server.schema.object_fields import Field, object_fields, with_default


class Struct(msgspec.Struct, rename="camel"):
    first_name: str
    age: int = 3
    tags: list[str] = msgspec.field(default_factory=list)


@dataclasses.dataclass
class Data:
    first_name: Annotated[str, "a name"]
    age: int = 3
    tags: list[str] = dataclasses.field(default_factory=list)
    made: int = dataclasses.field(init=False, default=0)


class Total(TypedDict):
    a: int
    b: NotRequired[Annotated[str, "b"]]


class Partial(TypedDict, total=False):
    a: int
    b: Required[str]


class Quoted(TypedDict):
    """Annotations as `from __future__ import annotations` stores them."""

    a: "NotRequired[int]"
    b: "Annotated[NotRequired[int], 'b']"
    c: int


class PartialQuoted(TypedDict, total=False):
    a: "Required[int]"
    b: int


@dataclasses.dataclass
class Lost:
    value: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


NONE = msgspec.NODEFAULT


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (
            Struct,
            [
                Field("firstName", "first_name", str, True, NONE),
                Field("age", "age", int, False, 3),
                Field("tags", "tags", list[str], False, NONE),
            ],
        ),
        (
            Data,
            [
                Field("first_name", "first_name", Annotated[str, "a name"], True, NONE),
                Field("age", "age", int, False, 3),
                Field("tags", "tags", list[str], False, NONE),
            ],
        ),
        (Total, [Field("a", "a", int, True), Field("b", "b", Annotated[str, "b"], False)]),
        (Partial, [Field("a", "a", int, False), Field("b", "b", str, True)]),
        (
            Quoted,
            [
                Field("a", "a", int, False),
                Field("b", "b", Annotated[int, "b"], False),
                Field("c", "c", int, True),
            ],
        ),
        (PartialQuoted, [Field("a", "a", int, True), Field("b", "b", int, False)]),
        (int, None),
        (list[int], None),
        (Data("x"), None),
    ],
    ids=[
        *("struct", "dataclass", "typed dict", "partial dict", "quoted", "partial quoted"),
        *("int", "list", "instance"),
    ],
)
def test_the_fields_of_each_kind_of_class_are_listed(kind: Any, fields: list[Field] | None) -> None:
    assert object_fields(kind) == fields


def test_the_error_of_an_unresolvable_annotation_names_the_class() -> None:
    with pytest.raises(TypeError, match=r"^in Lost: name 'Nowhere' is not defined$"):
        object_fields(Lost)


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        (NONE, {"type": "x"}),
        (None, {"type": "x", "default": None}),
        (0, {"type": "x", "default": 0}),
        ((1, 2), {"type": "x", "default": [1, 2]}),
        (object(), {"type": "x"}),
        (float("nan"), {"type": "x", "default": None}),
    ],
    ids=["no default", "none", "zero", "tuple", "object", "nan"],
)
def test_a_default_is_part_of_the_schema_if_it_has_a_json_form(default: Any, expected: Any) -> None:
    schema = {"type": "x"}
    assert with_default(schema, default) == expected
    assert schema == {"type": "x"}
