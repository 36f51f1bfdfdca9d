"""Tests of tools as Python functions."""

import inspect
from typing import Any, Literal

import pytest

from fairlead import MCPClient, MCPServer
from fairlead.manager.tools.tool import MCPTool
from fairlead.manager.tools.tool_callables import as_callables, signature_of

SCHEMA = {
    "type": "object",
    "properties": {
        "limit": {"type": "integer", "default": 10},
        "query": {"type": "string", "description": "Words to find"},
        "user-id": {"type": "string"},
        "class": {"type": "boolean"},
        "order": {"enum": ["asc", "desc"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        "odd": True,
    },
    "required": ["query", "user-id"],
}


def tool(*content: dict[str, Any], schema: Any = SCHEMA) -> tuple[MCPTool, list[dict[str, Any]]]:
    sent: list[dict[str, Any]] = []

    async def call(server: str, name: str, arguments: dict[str, Any], **_: Any) -> dict[str, Any]:
        sent.append(arguments)
        return {"content": list(content)}

    definition = {"name": "find", "description": "Find notes.", "inputSchema": schema}
    return MCPTool("mcp_s_find", "s", definition, call), sent


def test_the_signature_of_a_tool_function_follows_its_schema() -> None:
    signature, names = signature_of(SCHEMA)
    assert {name: (one.annotation, one.default) for name, one in signature.parameters.items()} == {
        "query": (str, inspect.Parameter.empty),
        "user_id": (str, inspect.Parameter.empty),
        "limit": (int, 10),
        "class_": (bool | None, None),
        "order": (Literal["asc", "desc"] | None, None),
        "tags": (list[str] | None, None),
        "where": (dict[str, Any] | None, None),
        "odd": (Any, None),
    }
    assert list(signature.parameters)[:3] == ["query", "user_id", "limit"]
    assert names["user_id"] == "user-id"
    assert names["class_"] == "class"


@pytest.mark.parametrize(
    ("schema", "annotation"),
    [
        ({"type": "number"}, float),
        ({"type": ["string", "integer"]}, str | int),
        ({"type": ["string", "null"]}, str | None),
        ({"oneOf": [{"type": "string"}, {"type": "string"}]}, str),
        ({"anyOf": [{"type": "string"}, {}]}, Any),
        ({"enum": [1, 2]}, Literal[1, 2]),
        ({"type": "array"}, list[Any]),
        ({"type": "strange"}, Any),
        ({}, Any),
    ],
)
def test_schema_types_become_annotations_of_the_tool_function(
    schema: dict[str, Any], annotation: Any
) -> None:
    signature, _ = signature_of({"properties": {"a": schema}, "required": ["a"]})
    assert signature.parameters["a"].annotation == annotation


def test_parameters_with_the_same_python_identifier_stay_distinct() -> None:
    _, names = signature_of({"properties": {"a-b": {}, "a_b": {}, "1": {}, "": {}}})
    assert names == {"a_b": "a-b", "a_b_": "a_b", "_1": "1", "_": ""}


async def test_a_tool_function_sends_only_the_given_arguments_by_their_schema_names() -> None:
    one, sent = tool({"type": "text", "text": "found"})
    function = as_callables([one])["mcp_s_find"]
    assert await function("bread", user_id="7", class_=True) == "found"
    assert sent == [{"query": "bread", "user-id": "7", "class": True}]
    with pytest.raises(TypeError, match="missing a required argument: 'user_id'"):
        await function("bread")
    assert inspect.signature(function) == signature_of(SCHEMA)[0]
    assert inspect.get_annotations(function)["query"] is str
    assert function.__doc__ == "Find notes.\n\nArgs:\n    query: Words to find"


async def test_a_tool_function_sends_additional_keywords_if_the_schema_allows_them() -> None:
    image = {"type": "image", "data": "", "mimeType": "image/png"}
    one, sent = tool(image, schema={"type": "object", "properties": {"user-id": {}}})
    assert await as_callables([one])["mcp_s_find"](a=1, **{"user-id": 2}) == [image]
    assert sent == [{"a": 1, "user-id": 2}]
    closed, _ = tool(schema={"type": "object", "additionalProperties": False})
    function = as_callables([closed])["mcp_s_find"]
    assert str(inspect.signature(function)) == "() -> Any"
    with pytest.raises(TypeError, match="unexpected keyword argument 'a'"):
        await function(a=1)


async def test_a_function_returns_structured_content_that_no_text_repeats() -> None:
    async def call(server: str, name: str, arguments: dict[str, Any], **_: Any) -> dict[str, Any]:
        text = {"type": "text", "text": "It is warm."}
        return {"content": [text], "structuredContent": {"degrees": 21}}

    functions = as_callables([MCPTool("weather", "s", {"name": "weather"}, call)])
    assert await functions["weather"]() == 'It is warm.\n{"degrees":21}'


async def test_as_callables_accepts_the_tools_that_a_client_lists() -> None:
    server = MCPServer("maths")

    @server.tool
    def add(a: int, b: int = 2) -> int:
        return a + b

    async with MCPClient.connect_inprocess(server) as client:
        listed = await client.list_tools()
        functions = as_callables(listed, client)
        assert str(inspect.signature(functions["add"])) == "(a: int, b: int = 2) -> Any"
        assert await functions["add"](3) == "5"
    with pytest.raises(TypeError, match=r"need their client: `as_callables\(tools, client\)`"):
        as_callables(listed)
