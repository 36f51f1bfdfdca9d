"""Functions that are called with texts: conversion, choices and descriptions."""

import enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

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


def test_parameters_are_described_by_their_types() -> None:
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


def test_texts_are_converted_to_the_types_of_the_parameters() -> None:
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
        ({}, "Missing: name", {"missing": ["name"]}),
        ({"name": "x", "count": "many"}, "count: Expected `int`", {"argument": "count"}),
        ({"name": "x", "share": "nan"}, "share: 'nan' is no number", {"argument": "share"}),
        ({"name": "x", "tone": "loud"}, "tone: one of warm, cool", {"argument": "tone"}),
        ({"name": "x", "items": "[1"}, "items: ", {"argument": "items"}),
    ],
)
def test_texts_that_do_not_fit_are_named(given: dict[str, str], message: str, data: Any) -> None:
    with pytest.raises(RpcError) as wrong:
        TextSignature(everything).arguments(given, None)
    assert wrong.value.code == -32602
    assert wrong.value.message.startswith(message)
    assert wrong.value.data == data


def test_a_function_with_keywords_takes_any_text() -> None:
    def anything(first: str, /, *rest: str, second: str = "", **more: Any) -> None: ...

    signature = TextSignature(anything)
    assert signature.takes_any
    assert list(signature.parameters) == ["second"]
    assert signature.arguments({"second": "x", "third": "3"}, None) == {"second": "x", "third": "3"}


def test_annotations_that_cannot_be_resolved_are_texts() -> None:
    def odd(value: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert TextSignature(odd).arguments({"value": "5"}, None) == {"value": "5"}
