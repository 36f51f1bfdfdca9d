"""Tests of prompts from templates and functions."""

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import UNSET

from fairlead import Context, RpcError
from fairlead.protocol.types.prompts import PromptArgument
from fairlead.server.features.prompt_entry import fill, prompt_from_function, prompt_from_template


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain", "plain"),
        ("{a} and {b}", "1 and {a}"),
        ("{{a}} {a}", "{a} 1"),
        ("{{{a}}}", "{1}"),
        ("}} {{", "} {"),
        ("{missing}.", "."),
        ("{} {a b} {", "{} {a b} {"),
    ],
)
def test_a_prompt_template_is_filled_in_one_pass(template: str, text: str) -> None:
    assert fill(template, {"a": "1", "b": "{a}"}) == text


def greet(
    who: Annotated[str, msgspec.Meta(title="Who", description="a person")],
    ctx: Context,
    times: int = 1,
) -> str:
    """Greet people."""
    return f"{who} {times + 1} {ctx}"


async def later(**given: str) -> Any:
    return given


def test_a_prompt_is_described_by_its_function() -> None:
    entry = prompt_from_function(greet, None, None, None)
    definition = entry.definition
    assert (definition.name, definition.title) == ("greet", UNSET)
    assert definition.description == "Greet people."
    assert definition.arguments == [
        PromptArgument(name="who", title="Who", description="a person", required=True),
        PromptArgument(name="times", title=UNSET, description=UNSET, required=False),
    ]
    assert entry.signature is not None
    assert entry.signature.context_name is not None
    assert (entry.asynchronous, entry.home) == (False, None)
    given = {"who": "Ada", "times": "2", "unknown": "x"}
    assert entry.render(given, "context") == "Ada 3 context"  # type: ignore[arg-type]


def test_explicit_properties_of_a_prompt_override_those_of_its_function() -> None:
    entry = prompt_from_function(later, "n", "D.", "T")
    definition = entry.definition
    assert (definition.name, definition.description, definition.title) == ("n", "D.", "T")
    assert definition.arguments is UNSET
    assert entry.signature is not None
    assert entry.signature.context_name is None
    assert entry.asynchronous
    assert prompt_from_function(later, None, None, None).definition.description is UNSET


@pytest.mark.parametrize(
    ("description", "template", "text"),
    [
        ("D", "T {a}", "T 1"),
        ("D {a}", None, "D 1"),
        (None, None, "name"),
        ("D", "", ""),
    ],
    ids=["template", "description", "name", "empty"],
)
def test_the_prompt_text_defaults_to_the_description_or_the_name(
    description: str | None, template: str | None, text: str
) -> None:
    entry = prompt_from_template("name", description, [{"name": "a"}], template)
    assert entry.definition.description == (description or UNSET)
    assert entry.definition.title is UNSET
    assert entry.render({"a": "1"}, None) == text
    assert (entry.asynchronous, entry.signature) == (False, None)


async def test_a_prompt_template_may_be_a_function_with_or_without_declared_arguments() -> None:
    bare = prompt_from_template("n", None, None, greet, "T")
    assert (bare.definition.name, bare.definition.title) == ("n", "T")
    assert [argument.name for argument in bare.definition.arguments or ()] == ["who", "times"]
    declared = prompt_from_template("n", "D", [{"name": "a"}, {"name": "b"}], later, "T")
    assert (declared.definition.description, declared.definition.title) == ("D", "T")
    assert declared.asynchronous
    assert await declared.render({"a": "1", "c": "3"}, None) == {"a": "1"}


def test_missing_required_prompt_arguments_are_rejected() -> None:
    arguments = [{"name": "a", "required": True}, {"name": "b"}, {"name": "c", "required": True}]
    entry = prompt_from_template("n", None, arguments, "x")
    entry.check({"a": "", "c": ""})
    with pytest.raises(RpcError) as refused:
        entry.check({"b": "1"})
    assert refused.value.code == -32602
    assert refused.value.message == "Missing arguments of prompt 'n': a, c"
    assert refused.value.data == {"missing": ["a", "c"]}
    prompt_from_template("n", None, None, "x").check({})
