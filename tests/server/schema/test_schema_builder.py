"""Tests of schemas for types that msgspec does not support."""

import collections.abc
import dataclasses
import enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from annotated_types import Gt, MaxLen

from fairlead.server.schema.schema_builder import SchemaBuilder


@dataclasses.dataclass
class Circle:
    radius: float = 1.0


@dataclasses.dataclass
class Box:
    """Has a width."""

    width: int
    height: int = 1


class Tree(msgspec.Struct):
    size: Annotated[int, Gt(0)]
    left: "Tree | None" = None


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Nothing(enum.Enum):
    NO = None
    YES = "yes"


class Pairs(enum.Enum):
    A = (1, 2)


class Optional(TypedDict, total=False):
    a: Annotated[int, Gt(0)]


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(alias="given")
    made: int = 1

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the schema of a type with its definitions."""
    forms = SchemaBuilder()
    return forms.root(forms.of(kind).schema)


CIRCLE = {
    "title": "Circle",
    "type": "object",
    "properties": {"radius": {"type": "number", "default": 1.0}},
}
BOX = {
    "title": "Box",
    "description": "Has a width.",
    "type": "object",
    "properties": {"width": {"type": "integer"}, "height": {"type": "integer", "default": 1}},
    "required": ["width"],
}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (Circle, CIRCLE),
        (Box, BOX),
        (
            Circle | Box | None,
            {
                "anyOf": [
                    {"$ref": "#/$defs/Circle"},
                    {"$ref": "#/$defs/Box"},
                    {"type": "null"},
                ],
                "$defs": {"Circle": CIRCLE, "Box": BOX},
            },
        ),
        (
            list[Literal[1.5]],
            {"type": "array", "items": {"enum": [1.5]}},
        ),
        (
            frozenset[Literal[1.5]],
            {"type": "array", "items": {"enum": [1.5]}, "uniqueItems": True},
        ),
        (
            collections.abc.Set[Literal[1.5]],
            {"type": "array", "items": {"enum": [1.5]}, "uniqueItems": True},
        ),
        (tuple[Literal[1.5], ...], {"type": "array", "items": {"enum": [1.5]}}),
        (
            tuple[Literal[1.5], int],
            {
                "type": "array",
                "prefixItems": [{"enum": [1.5]}, {"type": "integer"}],
                "items": False,
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (
            collections.abc.Mapping[str, Literal[1.5]],
            {"type": "object", "additionalProperties": {"enum": [1.5]}},
        ),
        (Mixed, {"title": "Mixed", "enum": [1, "two"]}),
        (Nothing, {"title": "Nothing", "enum": [None, "yes"]}),
        (Literal[Mixed.TWO, 1.5], {"enum": ["two", 1.5]}),
        (
            Annotated[list[Literal[1.5]], MaxLen(3), "few"],
            {"type": "array", "items": {"enum": [1.5]}, "maxItems": 3, "description": "few"},
        ),
        (
            Annotated[dict[str, Literal[1.5]], MaxLen(3)],
            {"type": "object", "additionalProperties": {"enum": [1.5]}, "maxProperties": 3},
        ),
        (
            Annotated[Path, MaxLen(3)],
            {"type": "string", "format": "path", "maxLength": 3},
        ),
        (
            Annotated[Literal[1.5] | str, msgspec.Meta(tz=True, title="T")],
            {"anyOf": [{"enum": [1.5]}, {"type": "string"}], "title": "T"},
        ),
        (
            Tree,
            {
                "title": "Tree",
                "type": "object",
                "properties": {
                    "size": {"type": "integer", "exclusiveMinimum": 0},
                    "left": {
                        "anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}],
                        "default": None,
                    },
                },
                "required": ["size"],
                "$defs": {
                    "Tree": {
                        "title": "Tree",
                        "type": "object",
                        "properties": {
                            "size": {"type": "integer", "exclusiveMinimum": 0},
                            "left": {
                                "anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}],
                                "default": None,
                            },
                        },
                        "required": ["size"],
                    }
                },
            },
        ),
        (
            Optional,
            {
                "title": "Optional",
                "type": "object",
                "properties": {"a": {"type": "integer", "exclusiveMinimum": 0}},
            },
        ),
    ],
    ids=[
        "no required field",
        "object",
        "union",
        "list",
        "frozen set",
        "abstract set",
        "long tuple",
        "tuple",
        "mapping",
        "enum",
        "enum with null",
        "literal",
        "noted list",
        "noted mapping",
        "noted path",
        "time zone",
        "recursive",
        "typed dict",
    ],
)
def test_python_types_are_converted_to_json_schemas(kind: Any, schema: dict[str, Any]) -> None:
    assert schema_of(kind) == schema


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (complex, "complex is not a JSON type"),
        (list[complex], "complex is not a JSON type"),
        (collections.abc.Callable[[], int], "Callable is not a JSON type"),
        ("text", "Type ''text'' is not supported"),
        (Pairs, "the values of Pairs are not all strings or numbers"),
    ],
    ids=["complex", "list", "function", "no type", "enum"],
)
def test_types_without_a_json_form_are_rejected(kind: Any, problem: str) -> None:
    with pytest.raises(TypeError) as refused:
        SchemaBuilder().of(kind)
    assert str(refused.value) == problem


def test_a_type_with_foreign_annotations_is_not_passed_to_msgspec() -> None:
    with pytest.raises(TypeError, match="msgspec does not support the annotations of its fields"):
        SchemaBuilder().native(Tree)
    assert SchemaBuilder().native(Box).schema == {"$ref": "#/$defs/Box"}


def test_the_schema_of_a_model_describes_its_input_fields() -> None:
    assert schema_of(Model)["properties"].keys() == {"given", "made"}


def test_classes_with_the_same_name_have_separate_definitions() -> None:
    other = dataclasses.make_dataclass("Tree", [("height", Annotated[int, Gt(5)])])
    third = dataclasses.make_dataclass("Tree", [("leaves", Annotated[int, Gt(9)])])
    generic = dataclasses.make_dataclass("Tree", [("n", Annotated[int, Gt(1)])])
    generic.__name__ = "Tree[int] x"
    forms = SchemaBuilder()
    schemas = [forms.of(kind).schema for kind in (Tree, other, third, generic)]
    assert schemas == [
        {"$ref": f"#/$defs/{name}"} for name in ("Tree", "Tree_", "Tree__", "Tree_int__x")
    ]
    assert forms.defs["Tree_"]["properties"].keys() == {"height"}
    assert forms.of(other).schema == {"$ref": "#/$defs/Tree_"}
    assert len(forms.defs) == 4


def test_definitions_with_the_same_name_are_numbered_and_equal_ones_are_shared() -> None:
    def make(field: str) -> Any:
        return msgspec.defstruct("Same", [(field, int)])

    forms = SchemaBuilder()
    schemas = [forms.of(make(field)).schema for field in ("a", "b", "a", "c", "b")]
    names = [schema["$ref"].removeprefix("#/$defs/") for schema in schemas]
    assert names == ["Same", "Same_2", "Same", "Same_3", "Same_2"]
    assert list(forms.defs["Same_3"]["properties"]) == ["c"]


def test_a_complete_schema_has_the_definitions_it_needs() -> None:
    forms = SchemaBuilder()
    forms.defs = {
        "A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}}, "required": []},
        "B": {"items": {"$ref": "#/$defs/B"}},
        "Unused": {},
    }
    assert forms.root({"$ref": "#/$defs/A", "description": "d"}) == {
        "type": "object",
        "properties": {"b": {"$ref": "#/$defs/B"}},
        "description": "d",
        "$defs": {"B": forms.defs["B"]},
    }
    assert forms.root({"type": "string"}) == {"type": "string"}
    assert forms.root({"required": ["a"]}) == {"required": ["a"]}


FAILS = object()


@pytest.mark.parametrize(
    ("kind", "value", "strict", "made"),
    [
        (Box, {"width": 1}, True, Box(1)),
        (Box, {"width": "1"}, False, Box(1)),
        (Box, {"width": "1"}, True, FAILS),
        (Circle | Box, {"width": 1}, True, Box(1)),
        (Circle | Box, {}, True, Circle()),
        (Circle | Box, {"radius": 2, "width": 1}, True, Circle(2)),
        (Circle | Box, {"width": "1"}, True, Circle()),
        (Circle | Box, {"width": "1"}, False, Box(1)),
        (Circle | Box, 5, False, FAILS),
        (Box | dict[str, int], {"width": 1, "other": 2}, True, {"width": 1, "other": 2}),
        (Box | dict[str, int], {"width": 1}, True, Box(1)),
        (Literal[1.5] | int | str, "7", False, "7"),
        (Literal[1.5] | int, "7", False, 7),
        (Literal[1.5] | int, "7", True, FAILS),
        (Literal[1.5] | bool, True, False, True),
        (tuple[Literal[1.5], int], [1.5, "2"], False, (1.5, 2)),
        (tuple[Literal[1.5], int], [1.5], False, FAILS),
        (tuple[Literal[1.5], int], [1.5, 2, 3], False, FAILS),
        (tuple[Literal[1.5], int], "ab", False, FAILS),
        (tuple[Literal[1.5], ...], [1.5, 1.5], True, (1.5, 1.5)),
        (collections.abc.Sequence[Literal[1.5]], [1.5], True, [1.5]),
        (collections.abc.Set[Literal[1.5]], [1.5, 1.5], True, {1.5}),
        (list[Literal[1.5]], {"a": 1.5}, True, FAILS),
        (dict[int, Literal[1.5]], {"3": 1.5}, True, {3: 1.5}),
        (dict[str, Literal[1.5]], [1.5], True, FAILS),
        (Mixed, 1, True, Mixed.ONE),
        (Mixed, 1.0, True, Mixed.ONE),
        (Mixed, True, True, FAILS),
        (Mixed, [], True, FAILS),
        (Nothing, None, True, Nothing.NO),
        (Annotated[Path, MaxLen(3)], "abc", True, Path("abc")),
        (Annotated[Path, MaxLen(3)], "abcd", True, FAILS),
        (Annotated[Path | None, MaxLen(3)], None, True, None),
        (Tree, {"size": 1, "left": {"size": 2}}, True, Tree(1, Tree(2))),
        (Tree, {"size": 1, "left": {"size": 0}}, True, FAILS),
        (Tree, {"left": None}, True, FAILS),
        (Tree, [], True, FAILS),
    ],
)
def test_json_values_are_converted_to_the_declared_type(
    kind: Any, value: Any, strict: bool, made: Any
) -> None:
    convert = SchemaBuilder().of(kind).convert
    if made is FAILS:
        with pytest.raises((ValueError, TypeError, msgspec.ValidationError)):
            convert(value, strict)
        return
    found = convert(value, strict)
    assert found == made
    assert type(found) is type(made)


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (Annotated[Path, MaxLen(3)], "abcd", "maxLength is 3"),
        (Mixed, 3, "is not one of the allowed values"),
        (Circle | Box, 5, "does not match any of the allowed types"),
        (Annotated[Tree, "d"], {}, "missing: size"),
    ],
    ids=["limit", "enum", "union", "missing"],
)
def test_an_invalid_json_value_is_rejected_with_a_reason(
    kind: Any, value: Any, problem: str
) -> None:
    with pytest.raises(ValueError, match=f"^{problem}$"):
        SchemaBuilder().of(kind).convert(value, True)
