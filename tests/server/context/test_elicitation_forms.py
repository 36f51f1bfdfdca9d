"""Tests of elicitation forms and the responses to them."""

import enum
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.server.context.elicitation_forms import ElicitationForm

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "x": {"type": "number"}},
    "required": ["n"],
}


@dataclass
class Person:
    name: str
    age: int = 0


class Meal(enum.Enum):
    DINNER = "dinner"


class Booking(pydantic.BaseModel):
    guest: str = pydantic.Field(min_length=2, description="Name of the guest")
    nights: int | None = pydantic.Field(None, ge=1)
    meals: list[Meal] = []


def accepted(content: Any) -> Raw:
    return Raw(json.dumps({"action": "accept", "content": content}).encode())


@pytest.mark.parametrize(
    ("kind", "content", "data"),
    [
        (SCHEMA, {"n": 1}, {"n": 1}),
        (SCHEMA, {"n": "2"}, {"n": 2}),
        (Person, {"name": "Ada", "age": "3"}, Person("Ada", 3)),
        (bool, {"value": True}, True),
        (int, {"value": "5"}, 5),
        (Literal["a", "b"], {"value": "b"}, "b"),
        (["a", "b"], {"value": "b"}, "b"),
        (Booking, {"guest": "Ada", "meals": ["dinner"]}, Booking(guest="Ada", meals=["dinner"])),
    ],
    ids=[
        *("schema", "text for a number", "record", "plain", "text for an int", "choice"),
        *("choices", "model"),
    ],
)
def test_an_elicitation_response_that_matches_the_schema_is_converted(
    kind: Any, content: Any, data: Any
) -> None:
    answer = ElicitationForm(kind).read(accepted(content))
    assert (answer.action, answer.data) == ("accept", data)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (SCHEMA, {"n": "many"}),
        (SCHEMA, {}),
        (SCHEMA, {"n": 1, "x": "nan"}),
        (Person, {"age": 3}),
        (float, {"value": "inf"}),
        (bool, None),
    ],
    ids=["wrong", "missing", "not a number", "record", "infinite", "empty"],
)
def test_an_elicitation_response_that_does_not_match_the_schema_is_rejected(
    kind: Any, content: Any
) -> None:
    with pytest.raises(RpcError) as refused:
        ElicitationForm(kind).read(accepted(content))
    assert refused.value.code == -32602
    assert refused.value.message.startswith("The response does not match the requested schema: ")


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_declined_or_cancelled_elicitation_has_no_data(action: str) -> None:
    answer = ElicitationForm(SCHEMA).read(Raw(b'{"action":"%b"}' % action.encode()))
    assert (answer.action, answer.data) == (action, None)


def test_an_invalid_schema_of_a_form_is_rejected() -> None:
    with pytest.raises(TypeError, match="invalid JSON Schema of a form"):
        ElicitationForm({"type": "no such type"})


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Order(TypedDict):
    size: Annotated[Size, msgspec.Meta(description="how big")]
    extras: NotRequired[list[Literal["a", "b"]]]
    others: NotRequired[Annotated[list[Size], msgspec.Meta(title="Others")]]
    best: NotRequired[Annotated[Size, msgspec.Meta(title="Best")]]


class Settings(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(title="Name")] = "x"
    ratio: float | None = None
    on: bool = False


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (
            int,
            {
                "type": "object",
                "properties": {"value": {"type": "integer"}},
                "required": ["value"],
            },
        ),
        (
            Settings,
            {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "title": "Name", "default": "x"},
                    "ratio": {"type": "number"},
                    "on": {"type": "boolean", "default": False},
                },
            },
        ),
        (
            Order,
            {
                "type": "object",
                "properties": {
                    "size": {
                        "type": "string",
                        "enum": ["large", "small"],
                        "description": "how big",
                    },
                    "extras": {
                        "type": "array",
                        "items": {"type": "string", "enum": ["a", "b"]},
                    },
                    "others": {
                        "type": "array",
                        "title": "Others",
                        "items": {"type": "string", "enum": ["large", "small"]},
                    },
                    "best": {"type": "string", "title": "Best", "enum": ["large", "small"]},
                },
                "required": ["size"],
            },
        ),
        (SCHEMA, SCHEMA),
    ],
    ids=["plain", "struct", "typed dict", "schema"],
)
def test_the_schema_of_a_form_has_only_primitive_fields(kind: Any, schema: dict[str, Any]) -> None:
    assert ElicitationForm(kind).schema == schema


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (Person | None, "value"),
        (list[int], "value"),
        (int | str, "value"),
        (dict[str, int], "value"),
        (msgspec.defstruct("Nested", [("inner", Person)]), "inner"),
    ],
    ids=["record", "list", "union", "mapping", "nested"],
)
def test_forms_with_nested_fields_are_rejected(kind: Any, field: str) -> None:
    with pytest.raises(TypeError) as refused:
        ElicitationForm(kind)
    assert str(refused.value) == (
        f"invalid form field '{field}': "
        "expected a primitive, an enumeration or a list of enumerated values"
    )


@pytest.mark.parametrize(
    ("text", "finite"),
    [("nan", False), ("-Inf", False), ("+infinity", False), ("1e5", True), ("infinite", None)],
)
def test_numbers_in_elicitation_responses_must_be_finite(text: str, finite: bool | None) -> None:
    form = ElicitationForm(Settings)
    if finite:
        assert form.read(accepted({"ratio": text})).data == Settings(ratio=float(text))
        return
    with pytest.raises(RpcError) as refused:
        form.read(accepted({"ratio": text}))
    assert (f"{text!r} is not a number" in refused.value.message) is (finite is False)
    assert form.read(accepted({"name": text})).data == Settings(name=text)


@pytest.mark.parametrize(
    "answer", [b"{", b"[]", b"{}", b'{"action":"maybe"}', b'{"action":"accept","content":[]}']
)
def test_a_malformed_elicitation_response_is_rejected(answer: bytes) -> None:
    with pytest.raises(RpcError, match="The response does not match the requested schema: "):
        ElicitationForm(bool).read(Raw(answer))


def test_an_elicitation_is_accepted_only_if_its_action_is_accept() -> None:
    form = ElicitationForm(bool)
    assert form.read(accepted({"value": False})).accepted is True
    assert form.read(Raw(b'{"action":"decline","content":{"value":true}}')).accepted is False


def test_a_pydantic_model_describes_a_form() -> None:
    assert ElicitationForm(Booking).schema == {
        "type": "object",
        "properties": {
            "guest": {
                "type": "string",
                "title": "Guest",
                "description": "Name of the guest",
                "minLength": 2,
            },
            "nights": {"type": "integer", "title": "Nights", "minimum": 1},
            "meals": {
                "type": "array",
                "title": "Meals",
                "default": [],
                "items": {"type": "string", "enum": ["dinner"]},
            },
        },
        "required": ["guest"],
    }
    with pytest.raises(RpcError, match=r"guest: String should have at least 2 characters; nights"):
        ElicitationForm(Booking).read(accepted({"guest": "A", "nights": 0}))


class Party(pydantic.BaseModel):
    guests: list[Booking]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("str", "answer must be a type, a list of choices or a JSON Schema, not 'str'"),
        (5, "answer must be a type, a list of choices or a JSON Schema, not 5"),
        (["a", 1], r"answer must be a type, a list of choices or a JSON Schema, not \['a', 1\]"),
        ([], r"answer must be a type, a list of choices or a JSON Schema, not \[\]"),
        (Party, "invalid form field 'guests': expected a primitive, an enumeration or a list"),
    ],
)
def test_values_that_cannot_be_a_form_are_rejected(kind: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=f"^{reason}"):
        ElicitationForm(kind)
