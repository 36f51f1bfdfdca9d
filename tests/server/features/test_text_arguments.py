"""Tests of functions that receive arguments as text: conversion, choices and descriptions."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, Field

from fairlead import Context, RpcError
from fairlead.server.features.text_arguments import TextSignature


class Tone(enum.Enum):
    WARM = "warm"
    COOL = "cool"


def everything(
    name: str,
    count: Annotated[int, "how many"] = 1,
    share: float = 0.5,
    tone: Annotated[Tone, msgspec.Meta(title="Tone", description="sound")] = Tone.WARM,
    kind: Literal["a", "b"] | None = None,
    items: list[int] | None = None,
    loud: bool = False,
    *,
    context: Context | None = None,
) -> None: ...


def test_prompt_parameters_are_described_by_their_types() -> None:
    signature = TextSignature(everything)
    assert (signature.context_name, signature.takes_any) == ("context", False)
    described = {
        name: (one.required, one.title, one.description, one.choices)
        for name, one in signature.parameters.items()
    }
    assert described == {
        "name": (True, None, None, ()),
        "count": (False, None, "how many", ()),
        "share": (False, None, None, ()),
        "tone": (False, "Tone", "sound", ("warm", "cool")),
        "kind": (False, None, None, ("a", "b")),
        "items": (False, None, None, ()),
        "loud": (False, None, None, ("true", "false")),
    }


def test_text_arguments_are_converted_to_the_parameter_types() -> None:
    given = {
        "name": "5",
        "count": "5",
        "share": "0.25",
        "tone": "cool",
        "kind": "b",
        "items": "[1,2]",
        "loud": "true",
        "other": "x",
    }
    assert TextSignature(everything).arguments(given, None) == {
        "name": "5",
        "count": 5,
        "share": 0.25,
        "tone": Tone.COOL,
        "kind": "b",
        "items": [1, 2],
        "loud": True,
        "context": None,
    }


@pytest.mark.parametrize(
    ("given", "message", "data"),
    [
        ({}, "Missing arguments: name", {"missing": ["name"]}),
        (
            {"name": "x", "count": "many"},
            "count: Expected `int`, got 'many'",
            {"argument": "count"},
        ),
        ({"name": "x", "share": "nan"}, "share: 'nan' is not a number", {"argument": "share"}),
        ({"name": "x", "tone": "loud"}, "tone: must be one of warm, cool", {"argument": "tone"}),
        (
            {"name": "x", "items": "[1"},
            "items: Expected `array | null` as JSON text, got '[1'",
            {"argument": "items"},
        ),
        (
            {"name": "x", "items": '[1,"b"]'},
            "items: Expected `int`, got `str` at items.1",
            {"argument": "items"},
        ),
    ],
)
def test_invalid_text_arguments_are_rejected_with_the_argument_name(
    given: dict[str, str], message: str, data: Any
) -> None:
    with pytest.raises(RpcError) as wrong:
        TextSignature(everything).arguments(given, None)
    assert wrong.value.code == -32602
    assert wrong.value.message.startswith(message)
    assert wrong.value.data == data


def test_a_function_with_a_keywords_parameter_accepts_any_argument() -> None:
    def anything(*rest: str, second: str = "", **more: Any) -> None: ...

    signature = TextSignature(anything)
    assert signature.takes_any
    assert list(signature.parameters) == ["second"]
    assert signature.arguments({"second": "x", "third": "3"}, None) == {"second": "x", "third": "3"}


def test_unresolvable_annotations_are_treated_as_text() -> None:
    def odd(value: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert TextSignature(odd).arguments({"value": "5"}, None) == {"value": "5"}


def test_parameters_after_the_context_parameter_are_found() -> None:
    def function(
        ctx: Annotated[Context, "x"], second: int, *rest: str, third: str = "3"
    ) -> None: ...

    signature = TextSignature(function)
    assert (signature.context_name, signature.takes_any) == ("ctx", False)
    assert {name: one.required for name, one in signature.parameters.items()} == {
        "second": True,
        "third": False,
    }


@pytest.mark.parametrize(
    ("note", "text", "fits"),
    [
        (msgspec.Meta(pattern="^a+$"), "aa", True),
        (msgspec.Meta(pattern="^a+$"), "ab", False),
        (msgspec.Meta(min_length=1), "ab", True),
        ("no pattern", "ab", True),
    ],
    ids=["fits", "wrong", "other limit", "remark"],
)
def test_a_text_argument_must_match_the_pattern_of_its_parameter(
    note: Any, text: str, fits: bool
) -> None:
    def function(value: str) -> None: ...

    function.__annotations__["value"] = Annotated[str, note]
    signature = TextSignature(function)
    if fits:
        assert signature.arguments({"value": text}, None) == {"value": text}
        return
    with pytest.raises(RpcError) as wrong:
        signature.arguments({"value": text}, None)
    assert (wrong.value.code, wrong.value.data) == (-32602, {"argument": "value"})
    assert wrong.value.message == "value: must match '^a+$'"


class Numbers(enum.Enum):
    ONE = 1
    TWO = 2


@pytest.mark.parametrize(
    ("kind", "choices"),
    [
        (str, ()),
        (bool, ("true", "false")),
        (Numbers, ("1", "2")),
        (Literal["a", 5], ("a", "5")),
        (Annotated[Literal["a"], "x"], ("a",)),
        (Literal["a"] | None, ("a",)),
        (None | Literal["a"], ("a",)),
        (Literal["a"] | int, ()),
        (list[bool], ()),
    ],
    ids=["text", "bool", "enum", "literal", "noted", "optional", "null first", "union", "list"],
)
def test_enumerable_parameter_types_have_completion_choices(kind: Any, choices: Any) -> None:
    def function(value: str) -> None: ...

    function.__annotations__["value"] = kind
    assert TextSignature(function).parameters["value"].choices == choices


class Note:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    ("notes", "title", "description"),
    [
        (("a", "b"), None, "b"),
        ((Note(title="T"), Note(description="D")), "T", "D"),
        ((Note(title="T", description="D"), Note(title="", description=None)), "T", "D"),
        (("a", Note(description="D")), None, "D"),
        ((Note(),), None, None),
    ],
    ids=["texts", "two notes", "empty", "text and note", "nothing"],
)
def test_the_last_of_several_annotations_describes_a_parameter(
    notes: Any, title: str | None, description: str | None
) -> None:
    def function(value: str) -> None: ...

    function.__annotations__["value"] = Annotated[(str, *notes)]
    found = TextSignature(function).parameters["value"]
    assert (found.title, found.description) == (title, description)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (float, "1e3", 1000.0),
        (dict[str, int], '{"a":"1"}', {"a": 1}),
        (int | None, "null", None),
        (str | None, "null", "null"),
        (Any, "5", "5"),
    ],
    ids=["float", "json", "no number", "a text", "anything"],
)
def test_a_text_argument_is_converted_directly_or_from_json(
    kind: Any, text: str, value: Any
) -> None:
    def function(value: str) -> None: ...

    function.__annotations__["value"] = kind
    assert TextSignature(function).arguments({"value": text}, None) == {"value": value}


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Size:
    width: int


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Point, '{"x":1}', Point(x=1)),
        (Point | None, '{"x":1}', Point(x=1)),
        (list[Point], '[{"x":1,"y":2}]', [Point(x=1, y=2)]),
        (Size, '{"width":"3"}', Size(3)),
        (tuple[int, str], '[1,"a"]', (1, "a")),
        (Annotated[int, Field(ge=1)], "1", 1),
        (Sequence[int], "[1]", [1]),
        (Path, "/tmp", Path("/tmp")),
        (date, "2026-01-02", date(2026, 1, 2)),
    ],
    ids=["model", "optional", "models", "dataclass", "tuple", "limit", "sequence", "path", "date"],
)
def test_a_text_argument_is_decoded_by_its_annotation(kind: Any, text: str, value: Any) -> None:
    def function(value: str) -> None: ...

    function.__annotations__["value"] = kind
    assert TextSignature(function).arguments({"value": text}, None) == {"value": value}


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (
            Point,
            "1, 2",
            "Input should be a valid dictionary or instance of Point, as JSON text; got '1, 2'",
        ),
        (
            Point,
            '{"x":"a"}',
            "Input should be a valid integer, unable to parse string as an integer at value.x",
        ),
        (list[Point], "1", "Expected `array` as JSON text, got '1'"),
        (Size, "3", "Expected `object` as JSON text, got '3'"),
        (Size, "{}", "Object missing required field `width`"),
        (Annotated[int, Field(ge=1)], "0", "Expected `int` >= 1"),
        (date, "tomorrow", "Invalid RFC3339 encoded date"),
        (Literal[1, 2], "3", "must be one of 1, 2"),
    ],
    ids=["model", "member", "models", "dataclass", "missing", "limit", "date", "literal"],
)
def test_an_error_about_a_text_argument_names_it_and_the_expected_form(
    kind: Any, text: str, why: str
) -> None:
    def function(value: str) -> None: ...

    function.__annotations__["value"] = kind
    with pytest.raises(RpcError) as wrong:
        TextSignature(function).arguments({"value": text}, None)
    assert (wrong.value.code, wrong.value.data) == (-32602, {"argument": "value"})
    assert wrong.value.message == f"value: {why}"


def test_an_invalid_limit_of_a_parameter_is_reported_with_its_name() -> None:
    def function(value: Annotated[date, Field(ge=date(2026, 1, 1))]) -> None: ...

    with pytest.raises(TypeError, match=r"parameter 'value': ge=.* a limit must be a number"):
        TextSignature(function)


@pytest.mark.parametrize("text", ["inf", "-Infinity", "nan"])
def test_a_text_argument_that_is_not_a_finite_number_is_rejected(text: str) -> None:
    with pytest.raises(RpcError, match=f"share: '{text}' is not a number"):
        TextSignature(everything).arguments({"name": "x", "share": text}, None)


def test_the_context_of_a_prompt_is_passed_to_its_parameter() -> None:
    given = TextSignature(everything).arguments({"name": "x"}, "the context")  # type: ignore[arg-type]
    assert given == {"name": "x", "context": "the context"}
