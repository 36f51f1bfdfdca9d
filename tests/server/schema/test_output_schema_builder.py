"""Tests of the schemas of return types; `tests/interop` compares them with the official SDK."""

import enum
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from msgspec import UNSET, UnsetType

from fairlead.server.schema.output_schema_builder import OutputSchemaBuilder, flat_union


class Cat(msgspec.Struct, tag="cat", rename="camel"):
    """Catches mice."""

    mice_caught: Annotated[int, msgspec.Meta(ge=0)]
    name: str | UnsetType = UNSET


class Owner(msgspec.Struct):
    cats: list[Cat]
    more: msgspec.Raw = msgspec.Raw(b"1")


class Model(pydantic.BaseModel):
    inner: "Model | None" = None


class Held(msgspec.Struct):
    model: Model


class Odd(enum.Enum):
    BOTH = frozenset({1})


def schema_of(kind: Any) -> dict[str, Any]:
    builder = OutputSchemaBuilder()
    return builder.root(builder.of(kind))


CAT = {
    "title": "Cat",
    "description": "Catches mice.",
    "type": "object",
    "properties": {
        "type": {"const": "cat", "type": "string"},
        "miceCaught": {"type": "integer", "minimum": 0},
        "name": {"type": "string"},
    },
    "required": ["type", "miceCaught"],
}


@pytest.mark.covers("SRV-29")
def test_the_schema_of_a_struct_has_its_tag_and_encoded_names() -> None:
    assert schema_of(Cat) == CAT
    owner = schema_of(Owner)
    assert owner["properties"]["cats"] == {"type": "array", "items": {"$ref": "#/$defs/Cat"}}
    assert owner["required"] == ["cats"]
    assert owner["$defs"] == {"Cat": CAT}


def test_models_in_structs_keep_their_definitions() -> None:
    held = schema_of(Held)
    assert held["properties"] == {"model": {"$ref": "#/$defs/Model"}}
    inner = held["$defs"]["Model"]["properties"]["inner"]
    assert inner["anyOf"] == [{"$ref": "#/$defs/Model"}, {"type": "null"}]


def test_limits_of_an_optional_value_do_not_apply_to_null() -> None:
    assert schema_of(Annotated[int | None, msgspec.Meta(ge=1, description="a count")]) == {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
        "description": "a count",
    }


def test_different_classes_with_equal_names_are_distinguished() -> None:
    other = msgspec.defstruct("Cat", [("lives", int)])
    schema = schema_of(tuple[Cat, other])
    assert schema["prefixItems"] == [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Cat_2"}]
    assert schema["$defs"].keys() == {"Cat", "Cat_2"}


@pytest.mark.parametrize("kind", [range, list[range], Odd, type("Plain", (), {}), "text"])
def test_a_type_without_a_json_form_is_rejected(kind: Any) -> None:
    with pytest.raises(TypeError):
        schema_of(kind)


def test_union_schemas_are_flat_and_have_no_duplicates() -> None:
    text, number = {"type": "string"}, {"type": "integer"}
    assert flat_union([text, {"anyOf": [number, text]}]) == {"anyOf": [text, number]}
    assert flat_union([text, text]) == text
    assert schema_of(Literal["a"] | None) == {
        "anyOf": [{"const": "a", "type": "string"}, {"type": "null"}]
    }
