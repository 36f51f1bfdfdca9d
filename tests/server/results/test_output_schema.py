"""Tests of structured output: output schemas and the validation of results."""

import asyncio
import dataclasses
import datetime
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from fairlead import Context, MCPServer, MCPToolError
from fairlead.client import MCPClient, MCPClientConfig
from fairlead.errors import MCPErrorCode
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.schema.validation import Checker, InvalidArguments
from fairlead.protocol.types.content import TextContent
from fairlead.protocol.types.tools import CallToolResult
from fairlead.server.features.tool_entry import ToolEntry, tool_from_function, tool_from_schema
from fairlead.server.results.encode_result import is_result
from fairlead.server.results.media import Audio, Image
from fairlead.server.results.output_schema import output_of
from fairlead.transport.memory import memory_pair


@dataclasses.dataclass
class Weather:
    city: str
    degrees: float = 0.0


class Place(TypedDict):
    city: str


class Point(msgspec.Struct):
    x: int


class Tree(msgspec.Struct):
    name: str
    children: "list[Tree]" = []


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(serialization_alias="fullName")
    age: int = pydantic.Field(ge=0)


@dataclasses.dataclass
class Counted:
    made = 0
    n: int

    def __post_init__(self) -> None:
        Counted.made += 1


class Slotted(msgspec.Struct):
    """Struct that runs user code when it is created."""

    n: int

    def __post_init__(self) -> None:
        Counted.made += 1


@dataclasses.dataclass
class Limited:
    n: Annotated[int, pydantic.Field(ge=1, description="a count")]


PIXEL = b"\x89PNG\r\n\x1a\n"


def returning(kind: Any, value: Any = None) -> Callable[[], Any]:
    def function() -> Any:
        return value

    if kind is ...:
        del function.__annotations__["return"]
    else:
        function.__annotations__["return"] = kind
    return function


def tool(function: Callable[..., Any], output_schema: Any = None) -> ToolEntry:
    return tool_from_function(
        function,
        name=None,
        description=None,
        title=None,
        annotations=None,
        meta=None,
        timeout=None,
        inline=False,
        output_schema=output_schema,
    )


def schema_of(entry: ToolEntry) -> Any:
    given = entry.definition.output_schema
    return None if given is msgspec.UNSET else msgspec.json.decode(given)


def result_of(entry: ToolEntry, value: Any, tail: bytes = b"}") -> Any:
    assert entry.convert is not None
    content = entry.convert(value, tail)
    result = json.loads(content.result)
    # Only stateless revisions allow structured content that is not an object.
    assert content.plain or is_result(value) or not isinstance(result["structuredContent"], dict)
    return result


def refusal(entry: ToolEntry, value: Any) -> str:
    with pytest.raises(MCPToolError) as caught:
        result_of(entry, value)
    assert caught.value.code is MCPErrorCode.EXECUTION_ERROR
    prefix = "The result does not match the output schema: "
    assert caught.value.message.startswith(prefix)
    return caught.value.message.removeprefix(prefix)


@pytest.mark.covers("SRV-02", "SRV-29")
@pytest.mark.parametrize(
    "kind",
    [
        Weather,
        Place,
        Point,
        Tree,
        Person,
        dict[str, int],
        dict[str, Any],
        Awaitable[Point],
        Limited,
    ],
)
def test_return_types_that_are_json_objects_have_an_output_schema(kind: Any) -> None:
    assert schema_of(tool(returning(kind)))["type"] == "object"


@pytest.mark.covers("SRV-02", "SRV-29")
@pytest.mark.parametrize(
    "kind",
    [
        ...,
        Any,
        object,
        dict,
        list,
        datetime.date,
        Image,
        list[Image | str],
        Audio | None,
        TextContent,
        Annotated[TextContent, "text"],
        CallToolResult,
        dict[str, range],
    ],
)
def test_content_types_and_types_without_a_json_form_have_no_output_schema(kind: Any) -> None:
    entry = tool(returning(kind))
    assert schema_of(entry) is None
    assert entry.convert is None


@pytest.mark.covers("SRV-29")
@pytest.mark.parametrize(
    ("kind", "value", "structured"),
    [
        (Weather, Weather("Bern", 3), {"city": "Bern", "degrees": 3}),
        (Weather, {"city": "Bern", "more": 1}, {"city": "Bern", "degrees": 0.0}),
        (Place, {"city": "Bern"}, {"city": "Bern"}),
        (Point, Point(1), {"x": 1}),
        (
            Tree,
            Tree("a", [Tree("b")]),
            {"name": "a", "children": [{"name": "b", "children": []}]},
        ),
        (Person, Person(name="Ann", age=3), {"fullName": "Ann", "age": 3}),
        (dict[str, Person], {"a": Person(name="A", age=1)}, {"a": {"fullName": "A", "age": 1}}),
        (dict[str, datetime.date], {"d": datetime.date(2026, 1, 2)}, {"d": "2026-01-02"}),
        (dict[str, Path], {"p": Path("x")}, {"p": "x"}),
        (Limited, Limited(1), {"n": 1}),
    ],
)
def test_objects_become_structured_content_and_text(
    kind: Any, value: Any, structured: dict[str, Any]
) -> None:
    result = result_of(tool(returning(kind)), value)
    assert result["structuredContent"] == structured
    (block,) = result["content"]
    assert block["type"] == "text"
    assert json.loads(block["text"]) == structured


@pytest.mark.covers("SRV-29")
def test_the_output_schema_is_an_object_with_only_the_needed_definitions() -> None:
    assert schema_of(tool(returning(Point))) == {
        "title": "Point",
        "type": "object",
        "properties": {"x": {"type": "integer"}},
        "required": ["x"],
    }
    tree = schema_of(tool(returning(Tree)))
    assert tree["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert set(tree["$defs"]) == {"Tree"}
    assert schema_of(tool(returning(Person)))["properties"]["fullName"]["type"] == "string"


@pytest.mark.covers("SRV-29")
def test_an_encoded_result_ends_with_the_given_trailing_members() -> None:
    result = result_of(tool(returning(Point)), Point(1), b',"resultType":"complete"}')
    assert result == {
        "content": [{"type": "text", "text": '{"x":1}'}],
        "structuredContent": {"x": 1},
        "resultType": "complete",
    }


@pytest.mark.covers("SRV-29")
@pytest.mark.parametrize(
    ("kind", "value", "schema"),
    [
        (int, 3, {"type": "integer"}),
        (list[str], ["a"], {"type": "array", "items": {"type": "string"}}),
        (Point | None, None, {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}),
        (Literal[0.5], 0.5, {"const": 0.5, "type": "number"}),
        (None, None, {"type": "null"}),
    ],
)
def test_output_schema_true_wraps_values_that_are_not_objects(
    kind: Any, value: Any, schema: Any
) -> None:
    for entry in (tool(returning(kind), True), tool(returning(...), kind or type(None))):
        assert schema_of(entry)["properties"] == {"result": schema}
        assert schema_of(entry)["required"] == ["result"]
        assert result_of(entry, value)["structuredContent"] == {"result": value}


@pytest.mark.covers("SRV-02", "SRV-29")
def test_an_explicit_output_schema_overrides_the_return_type() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    entry = tool(returning(...), schema)
    schema["type"] = "array"  # later changes of the dict have no effect
    assert schema_of(entry)["type"] == "object"
    assert result_of(entry, {"n": 1})["structuredContent"] == {"n": 1}
    assert refusal(entry, {"n": 0}) == "n: 0 is less than the minimum of 1"
    assert schema_of(tool(returning(Point), False)) is None
    assert schema_of(tool(returning(int), Point))["required"] == ["x"]
    listed = tool(returning(...), {"type": "array"})  # newer revisions allow schemas of any type
    assert result_of(listed, [1])["structuredContent"] == [1]


@pytest.mark.covers("SRV-29")
@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (Point, Point("one"), "x: Expected `int`, got `str`"),  # type: ignore[arg-type]
        (Weather, Weather("Bern", float("nan")), "degrees: Expected `float`, got `null`"),
        (Point, None, "result: Expected `object`, got `null`"),
        (Tree, Tree("a", [Tree(3)]), "children.0.name: Expected `str`, got `int`"),  # type: ignore[arg-type]
        (Place, {}, "result: Object missing required field `city`"),
        (Person, {"name": "A", "age": -1}, "age: Input should be greater than or equal to 0"),
        (list[Limited], [{"n": 0}], "result.0.n: Input should be greater than or equal to 1"),
        (list[Person], [{}], "result.0.name: Field required; result.0.age: Field required"),
        (dict[str, Any], {"a": object()}, "result: a value of type object has no JSON form"),
    ],
)
def test_the_error_of_an_invalid_return_value_names_the_field(
    kind: Any, value: Any, problem: str
) -> None:
    assert refusal(tool(returning(kind)), value) == problem


@pytest.mark.covers("SRV-29")
def test_the_error_of_an_invalid_wrapped_value_names_the_field_result() -> None:
    assert refusal(tool(returning(list[int]), True), [1, "x"]) == (
        "result.1: Expected `int`, got `str`"
    )


@pytest.mark.covers("SRV-29")
def test_a_complete_result_is_validated_unless_it_is_an_error() -> None:
    entry = tool(returning(Point))
    block = msgspec.Raw(b'{"type":"text","text":"x"}')
    good = CallToolResult(content=[block], structured_content=msgspec.Raw(b'{"x":1}'))
    assert result_of(entry, good)["structuredContent"] == {"x": 1}
    bad = CallToolResult(content=[block], structured_content=msgspec.Raw(b'{"x":"y"}'))
    assert refusal(entry, bad) == 'x: "y" is not of type "integer"'
    assert refusal(entry, CallToolResult(content=[block])) == (
        "result: the structured content is missing"
    )
    failed = CallToolResult(content=[block], is_error=True)
    assert result_of(entry, failed)["isError"] is True


@pytest.mark.covers("SRV-29")
def test_validation_of_a_result_runs_no_user_code() -> None:
    entry = tool(returning(Counted))
    value = Counted(1)
    before = Counted.made
    assert result_of(entry, value)["structuredContent"] == {"n": 1}
    assert Counted.made == before
    assert "n: " in refusal(entry, {"n": "x"})


@pytest.mark.covers("SRV-02")
def test_a_return_type_without_a_schema_is_rejected() -> None:
    with pytest.raises(TypeError, match="function: output_schema=True requires a return"):
        tool(returning(...), True)
    for entry in (lambda: tool(returning(range), True), lambda: tool(returning(...), range)):
        with pytest.raises(TypeError, match="the return type has no JSON form: range"):
            entry()


@pytest.mark.covers("SRV-29", "DEC-04")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "auto"])
async def test_structured_content_is_sent_in_every_revision(version: str) -> None:
    server = MCPServer("s")

    @server.tool()
    async def weather(city: str) -> Weather:
        return Weather(city, 1 if city else "cold")  # type: ignore[arg-type]

    left, right = memory_pair()
    peer = server.attach(right, ANONYMOUS)

    async def open_channel() -> Any:
        return left

    config = MCPClientConfig(protocol_version=version)
    async with MCPClient.connect_channel(open_channel, config) as client:
        (listed,) = await client.list_tools()
        assert "outputSchema" in listed
        result = await client.call_tool("weather", {"city": "Bern"})
        assert json.loads(result["content"][0]["text"]) == {"city": "Bern", "degrees": 1}
        assert result["structuredContent"] == {"city": "Bern", "degrees": 1}
        wrong = await client.call_tool("weather", {"city": ""})
        assert wrong["isError"] is True
        error = json.loads(wrong["content"][0]["text"])
        assert error["code"] == "EXECUTION_ERROR"
        assert error["field_errors"] == [
            {"field": "degrees", "constraint": "Expected `float`, got `str`"}
        ]
    await peer.close()


# Tools with a given schema

INPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def called(entry: ToolEntry, arguments: str, context: Any = None) -> Any:
    return entry.call(entry.decode(msgspec.Raw(arguments.encode())), context)


@pytest.mark.covers("SRV-03", "SRV-29")
def test_a_tool_object_may_have_an_output_schema() -> None:
    output = {"type": "object", "required": ["n"]}
    bare = tool_from_schema("t", INPUT, lambda n: {"n": n}, None, output)
    whole_schema = {"inputSchema": INPUT, "outputSchema": output, "description": "d"}
    whole = tool_from_schema("t", whole_schema, lambda n: {"n": n}, "T")
    for entry in (bare, whole, tool_from_schema("t", INPUT, lambda n: n, None, Point)):
        assert schema_of(entry)["type"] == "object"
        assert refusal(entry, {}) is not None
    assert (whole.definition.title, whole.definition.description) == ("T", "d")
    assert result_of(whole, called(whole, '{"n":1}'))["structuredContent"] == {"n": 1}
    assert schema_of(tool_from_schema("t", whole_schema, lambda n: n, None, False)) is None
    assert tool_from_schema("t", INPUT, returning(Point), None).convert is None


@pytest.mark.covers("SRV-03", "SRV-28")
def test_a_handler_receives_its_arguments_and_a_context() -> None:
    def handler(n: int, ctx: Context, other: str = "o") -> Any:
        return n, ctx, other

    entry = tool_from_schema("t", INPUT, handler, None)
    assert entry.wants_context
    context = object()
    assert called(entry, '{"n":"1","ctx":"forged","surplus":2}', context) == (1, context, "o")

    def takes_all(**arguments: Any) -> Any:
        return arguments

    assert called(tool_from_schema("t", INPUT, takes_all, None), '{"n":1,"m":2}') == {
        "n": 1,
        "m": 2,
    }


@pytest.mark.covers("SRV-03")
def test_changing_a_schema_after_registration_has_no_effect() -> None:
    schema = json.loads(json.dumps(INPUT))
    entry = tool_from_schema("t", schema, lambda n: n, None)
    assert schema == INPUT
    schema["properties"]["n"]["type"] = "string"
    with pytest.raises(InvalidArguments, match="n: "):
        entry.decode(msgspec.Raw(b'{"n":"x"}'))


def test_external_references_in_a_schema_are_not_followed() -> None:
    with pytest.raises(ValueError, match="not followed"):
        tool_from_schema("t", {"$ref": "file:///etc/passwd"}, lambda: None, None)


@pytest.mark.covers("PRO-25")
def test_header_annotations_in_a_given_schema_are_validated() -> None:
    schema = {"type": "object", "properties": {"r": {"type": "number", "x-mcp-header": "R"}}}
    with pytest.raises(TypeError, match="t: r: the type must be string, integer or boolean"):
        tool_from_schema("t", schema, lambda r: r, None)


def test_handlers_of_tools_with_a_given_schema_may_be_asynchronous() -> None:
    async def handler(n: int) -> int:
        return n

    entry = tool_from_schema("t", INPUT, handler, None)
    assert entry.asynchronous
    assert asyncio.run(called(entry, '{"n":1}')) == 1


@pytest.mark.parametrize(
    ("schema", "compiled"), [({"type": "object"}, True), (Point, False), (Slotted, True)]
)
def test_warm_up_compiles_the_validator_of_results(
    schema: Any, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(Checker, "compile", lambda self: calls.append("compiled"))
    output = output_of(schema, None, "f")
    assert output is not None
    calls.clear()
    output.warm_up()
    assert bool(calls) is compiled


def test_an_invalid_output_schema_is_rejected_with_the_function_name() -> None:
    with pytest.raises(ValueError, match="^f: invalid outputSchema: "):
        output_of({"type": 5}, None, "f")
    with pytest.raises(TypeError, match="^f: output_schema=True requires a return annotation"):
        output_of(True, None, "f")
    with pytest.raises(TypeError, match="^f: the return type has no JSON form: "):
        output_of(True, range, "f")
    assert output_of(None, range, "f") is None
    assert output_of(False, Point, "f") is None


@pytest.mark.parametrize(
    ("kind", "wrapped"),
    [
        (Point, False),
        (Annotated[Point, "a place"], False),
        (Annotated[CallToolResult, Point], False),
        (Awaitable[Point], False),
        (Coroutine[Any, Any, int], True),
        (dict[str, int], False),
        (dict[int, int], True),
        (Mapping[str, int], True),
        (list[int], True),
        (Annotated[int, "n"], True),
        (int, True),
        (type(None), True),
    ],
)
def test_return_values_other_than_objects_are_wrapped(kind: Any, wrapped: bool) -> None:
    output = output_of(None, kind, "f")
    assert output is not None
    assert ("result" in output.schema.get("properties", {})) is wrapped


@pytest.mark.parametrize(
    "kind",
    [
        Slotted,
        dict[str, Slotted],
        list[Slotted],
        Slotted | None,
        msgspec.defstruct("Holder", [("inner", list[Slotted])]),
    ],
    ids=["struct", "dict", "list", "optional", "field"],
)
def test_validation_does_not_create_objects_with_post_init(kind: Any) -> None:
    output = output_of(True, kind, "f")
    assert output is not None
    inner = Slotted(1)
    made = Counted.made
    values = {Slotted: inner, dict[str, Slotted]: {"a": inner}, list[Slotted]: [inner]}
    value = values.get(kind, inner)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not Slotted:
        value = kind([inner])
    output.convert(value)
    assert Counted.made == made


def test_structured_content_of_a_complete_result_is_validated() -> None:
    output = output_of(Point, None, "f")
    assert output is not None
    good = CallToolResult(content=[], structured_content=msgspec.Raw(b'{"x":1}'))
    assert json.loads(output.convert(good).result)["structuredContent"] == {"x": 1}
    failed = CallToolResult(content=[], is_error=True)
    assert json.loads(output.convert(failed).result)["isError"] is True
    for value, problem in (
        (CallToolResult(content=[]), "result: the structured content is missing"),
        (
            CallToolResult(content=[], structured_content=msgspec.Raw(b'{"x":"a"}')),
            'x: "a" is not of type "integer"',
        ),
    ):
        with pytest.raises(MCPToolError) as refused:
            output.convert(value)
        assert refused.value.message == f"The result does not match the output schema: {problem}"


async def test_content_blocks_in_a_list_of_any_values_are_content_and_structured_content() -> None:
    server = MCPServer("media")

    @server.tool()
    def mixed() -> list[Any]:
        return ["a", Image(PIXEL), {"b": 1}]

    async with MCPClient.connect_inprocess(server) as client:
        result = await client.call_tool("mixed", {})
    text, image, data = result["content"]
    assert (text, image["type"]) == ({"type": "text", "text": "a"}, "image")
    assert data == {"type": "text", "text": '{"b":1}'}
    assert result["structuredContent"] == {"result": ["a", image, {"b": 1}]}


@pytest.mark.covers("SRV-29")
@pytest.mark.parametrize("kind", [..., list, list[Image | dict[str, int]]])
async def test_data_in_a_list_with_content_blocks_is_sent_as_text(kind: Any) -> None:
    server = MCPServer("media")
    server.tool("mixed")(returning(kind, [Image(PIXEL), {"b": 1}, TextContent(text="c"), 5]))
    async with MCPClient.connect_inprocess(server) as client:
        result = await client.call_tool("mixed", {})
    assert "structuredContent" not in result
    assert [block.get("text", block["type"]) for block in result["content"]] == [
        "image",
        '{"b":1}',
        "c",
        "5",
    ]


@pytest.mark.parametrize("kind", [..., dict, dict[str, Any], int, list[int]])
async def test_the_error_for_an_image_inside_of_data_says_where_it_may_be(kind: Any) -> None:
    server = MCPServer("media")
    server.tool("wrong")(returning(kind, {"plot": Image(PIXEL)}))
    async with MCPClient.connect_inprocess(server) as client:
        result = await client.call_tool("wrong", {})
    assert result.is_error
    assert "Image has no JSON form: return it alone, or as an item of a list" in result.text
