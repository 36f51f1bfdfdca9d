"""Tests of tool definitions, and of passing arguments to the function."""

import functools
import json
from collections.abc import Awaitable
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from fairlead import Context
from fairlead.protocol.schema.validation import Checker, InvalidArguments
from fairlead.protocol.types.tools import ToolAnnotations
from fairlead.server.features.tool_entry import (
    describe_function,
    is_asynchronous,
    tool_from_function,
    tool_from_schema,
)
from fairlead.server.schema.header_annotation import Header

ANYTHING: dict[str, Any] = {"type": "object"}


class Counter:
    """Counts."""

    async def __call__(self, n: int) -> int:
        return n + 1


class Point(msgspec.Struct):
    x: int


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


async def wait(ctx: Context, n: int) -> int:
    return n


def described(tool: Any) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(tool.definition))  # type: ignore[no-any-return]


def test_a_tool_is_described_by_its_function() -> None:
    entry = tool_from_function(add)
    assert described(entry) == {
        "name": "add",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
            "required": ["a"],
            "additionalProperties": False,
        },
        "outputSchema": {
            "type": "object",
            "properties": {"result": {"type": "integer"}},
            "required": ["result"],
        },
    }
    assert (entry.name, entry.home, entry.timeout) == ("add", None, None)
    assert (entry.asynchronous, entry.wants_context, entry.inline) == (False, False, False)
    assert entry.param_headers == ()
    assert entry.call(entry.decode(Raw(b'{"a":1}')), None) == 3
    entry.warm_up()


def test_explicit_properties_of_a_tool_override_those_of_its_function() -> None:
    entry = tool_from_function(
        add,
        name="plus",
        description="Plus.",
        title="Plus",
        annotations=ToolAnnotations(read_only_hint=True),
        meta={"a/b": 1},
        timeout=3,
        inline=True,
        output_schema={"type": "object"},
    )
    tool = described(entry)
    del tool["inputSchema"]
    assert tool == {
        "name": "plus",
        "title": "Plus",
        "description": "Plus.",
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "_meta": {"a/b": 1},
    }
    assert (entry.inline, entry.timeout, entry.convert is not None) == (True, 3, True)
    assert tool_from_function(add, description="").definition.description is UNSET


@pytest.mark.parametrize(
    ("function", "name", "asynchronous", "wants_context"),
    [
        (add, "add", False, False),
        (wait, "wait", True, True),
        (Counter(), "Counter", True, False),
        (functools.partial(add, b=5), "add", False, False),
        (functools.partial(functools.partial(add, b=5), b=6), "add", False, False),
    ],
    ids=["function", "coroutine", "object", "partial", "partial of partial"],
)
def test_any_callable_can_be_a_tool(
    function: Any, name: str, asynchronous: bool, wants_context: bool
) -> None:
    entry = tool_from_function(function)
    assert (entry.name, entry.asynchronous, entry.wants_context) == (
        name,
        asynchronous,
        wants_context,
    )
    assert is_asynchronous(function) is asynchronous


def test_a_function_is_described_by_its_docstring() -> None:
    assert describe_function(add) == "Add two numbers."
    assert describe_function(functools.partial(add, 1)) == "Add two numbers."
    assert describe_function(wait) == ""


def test_a_coroutine_function_cannot_be_an_inline_tool() -> None:
    with pytest.raises(TypeError, match="^wait: inline is not supported for coroutine functions$"):
        tool_from_function(wait, inline=True)


@pytest.mark.parametrize("hinted", [True, False], ids=["annotated", "given"])
def test_results_of_a_tool_with_an_output_schema_are_converted(hinted: bool) -> None:
    def place() -> Any: ...

    if hinted:
        place.__annotations__["return"] = Point
    entry = tool_from_function(place, output_schema=None if hinted else Point)
    assert described(entry)["outputSchema"]["properties"] == {"x": {"type": "integer"}}
    assert entry.convert is not None
    result = json.loads(entry.convert(Point(3), b"}").result)
    assert result["structuredContent"] == {"x": 3}
    entry.warm_up()


def test_a_parameter_may_be_sent_as_a_header() -> None:
    def here(region: Annotated[str, Header("Region")], n: int) -> None: ...

    (header,) = tool_from_function(here).param_headers
    assert (header.header, header.path, header.kind) == ("Region", ("region",), "string")


@pytest.mark.parametrize(
    ("schema", "title", "expected"),
    [
        (ANYTHING, None, {"name": "t", "inputSchema": ANYTHING}),
        ({}, None, {"name": "t", "inputSchema": ANYTHING}),
        ({"properties": {}}, "T", {"inputSchema": {**ANYTHING, "properties": {}}, "title": "T"}),
        ({"inputSchema": ANYTHING, "title": "Own"}, None, {"title": "Own"}),
        ({"inputSchema": ANYTHING, "title": "Own"}, "T", {"title": "T"}),
        ({"inputSchema": ANYTHING, "name": "other"}, None, {"name": "t"}),
        ({"inputSchema": ANYTHING, "_meta": {"a": 1.5}}, None, {"_meta": {"a": 1.5}}),
        ({"inputSchema": ANYTHING, "outputSchema": ANYTHING}, None, {"outputSchema": ANYTHING}),
        ({"inputSchema": ANYTHING, "description": "Own."}, None, {"description": "Own."}),
    ],
    ids=[
        "schema",
        "empty",
        "titled",
        "whole",
        "other title",
        "other name",
        "meta",
        "output",
        "description",
    ],
)
def test_a_tool_schema_may_be_a_json_schema_or_a_tool_object(
    schema: Any, title: str | None, expected: dict[str, Any]
) -> None:
    def handler() -> Point:
        """Does it."""
        return Point(1)

    before = json.dumps(schema)
    entry = tool_from_schema("t", schema, handler, title)
    tool = described(entry)
    assert tool.items() >= expected.items()
    assert tool["description"] == expected.get("description", "Does it.")
    assert ("outputSchema" in tool) is ("outputSchema" in expected)
    assert (entry.convert is not None) is ("outputSchema" in expected)
    assert (entry.inline, entry.timeout, entry.wants_context) == (False, None, False)
    assert json.dumps(schema) == before


def test_the_output_schema_may_be_given_as_an_argument() -> None:
    whole = {"inputSchema": ANYTHING, "outputSchema": {"type": "object", "title": "Own"}}
    entry = tool_from_schema("t", whole, lambda: None, None, {"type": "object", "title": "Given"})
    assert described(entry)["outputSchema"]["title"] == "Given"
    annotated = tool_from_schema("t", ANYTHING, Counter(), None, True)
    assert described(annotated)["outputSchema"]["properties"] == {"result": {"type": "integer"}}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ([], r"t: inputSchema must be a dict, not \[\]"),
        ({"inputSchema": 5}, "t: inputSchema must be a dict, not 5"),
        ({"type": "array"}, "t: inputSchema must have the type 'object', not 'array'"),
        ({"type": "object", "required": 5}, "t: invalid inputSchema: "),
        ({"inputSchema": {}, "title": 5}, "t: invalid tool object: "),
        (
            {"inputSchema": {}, "outputSchema": {"type": 5}},
            "t: invalid outputSchema: ",
        ),
    ],
    ids=["list", "number", "array", "broken", "title", "output"],
)
def test_an_invalid_schema_or_tool_object_is_rejected(schema: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}"):
        tool_from_schema("t", schema, lambda: None, None)


def call(handler: Any, arguments: str, schema: Any = None) -> Any:
    entry = tool_from_schema("t", schema or ANYTHING, handler, None)
    context = "the context" if entry.wants_context else None
    return entry.call(entry.decode(Raw(arguments.encode())), context)


def test_a_handler_receives_the_arguments_for_which_it_has_parameters() -> None:
    def some(a: int = 0, *rest: int, b: int = 0) -> Any:
        return a, rest, b

    def every(a: int = 0, **more: int) -> Any:
        return a, more

    def asking(a: int, ctx: Context) -> Any:
        return a, ctx

    def unknown(a: "Nowhere") -> Any:  # type: ignore[name-defined]  # noqa: F821
        return a

    given = '{"a":1,"b":2,"c":3,"rest":4}'
    assert call(some, given) == (1, (), 2)
    assert call(every, given) == (1, {"b": 2, "c": 3, "rest": 4})
    assert call(asking, '{"a":1,"b":2,"ctx":3}') == (1, "the context")
    assert call(unknown, given) == 1
    assert call(functools.partial(some, b=7), '{"a":1}') == (1, (), 7)


def test_arguments_are_validated_against_the_given_schema() -> None:
    schema = {"properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}

    def handler(n: int) -> int:
        return n

    assert call(handler, '{"n":"3"}', schema) == 3
    for wrong, field in (("{}", "n"), ('{"n":2}', "n"), ("[1]", "arguments"), ("{", "arguments")):
        with pytest.raises(InvalidArguments) as caught:
            call(handler, wrong, schema)
        assert field in str(caught.value)
    for deep in (b'{"n":' + b"[" * 100_000, b'{"n":"\xff"}'):
        with pytest.raises(InvalidArguments):
            tool_from_schema("t", schema, handler, None).decode(Raw(deep))


async def test_a_handler_may_be_a_coroutine_function() -> None:
    entry = tool_from_schema("t", ANYTHING, Counter(), None)
    assert entry.asynchronous
    work = entry.call(entry.decode(Raw(b'{"n":1}')), None)
    assert isinstance(work, Awaitable)
    assert await work == 2


def test_warm_up_compiles_the_validators_of_calls_and_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []

    def either(a: Annotated[str, msgspec.Meta(pattern="a")]) -> None: ...

    checked = tool_from_function(either)
    promised = tool_from_function(add, output_schema={"type": "object"})
    plain = tool_from_function(add)
    monkeypatch.setattr(Checker, "compile", lambda self: compiled.append("compiled"))
    for entry, count in ((plain, 0), (checked, 1), (promised, 1)):
        compiled.clear()
        entry.warm_up()
        assert len(compiled) == count
