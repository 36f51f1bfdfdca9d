"""Content of results for models, and normalized arguments."""

from typing import Any

import pytest

from fairlead.errors import MCPToolError
from fairlead.manager.tools.tool_result import (
    normalize_arguments,
    result_from_error,
    result_from_response,
)

ABOUT = {"server_name": "s", "mcp_tool_name": "t"}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


IMAGE = {"type": "image", "data": ""}


@pytest.mark.parametrize(
    ("result", "content", "is_error"),
    [
        ({"content": [text("a"), IMAGE]}, [text("a"), IMAGE], False),
        ({"content": [text("a"), "odd"]}, [text("a")], False),
        ({}, [], False),
        ({"content": None}, [], False),
        ({"content": [], "structuredContent": {"a": 1}}, [text('{"a":1}')], False),
        ({"content": [text("a")], "structuredContent": {"a": 1}}, [text("a")], False),
        ({"content": [text("a")], "isError": 1}, [text("a")], False),
        ({"content": [text("no")], "isError": True}, [text("MCP error: no")], True),
        (
            {"content": [IMAGE, text("no"), text("b")], "isError": True},
            [IMAGE, text("MCP error: no"), text("b")],
            True,
        ),
        ({"content": [IMAGE], "isError": True}, [text("MCP error: the tool failed"), IMAGE], True),
        ({"content": [], "isError": True}, [text("MCP error: the tool failed")], True),
        (MCPToolError("no").to_mcp_response(), [text("MCP error: no")], True),
        (
            MCPToolError("no", suggestion="try").to_mcp_response(),
            [text("MCP error: no"), text("try")],
            True,
        ),
    ],
)
def test_result_content_is_converted_for_the_model(
    result: dict[str, Any], content: list[dict[str, Any]], is_error: bool
) -> None:
    made = result_from_response(result, **ABOUT)
    assert (made.content, made.details.is_error) == (content, is_error)
    assert (made.details.server_name, made.details.mcp_tool_name) == ("s", "t")


def test_result_details_contain_all_parts_of_the_response() -> None:
    made = result_from_response(
        {"content": [text("a")], "structuredContent": [1], "_meta": {"k": 1}}, **ABOUT
    )
    details = made.details
    assert (details.raw_content, details.structured_content, details.meta) == (
        [text("a")],
        [1],
        {"k": 1},
    )
    assert result_from_response({"_meta": 1}, **ABOUT).details.meta is None


def test_a_failed_tool_call_becomes_an_error_result() -> None:
    made = result_from_error("gone", **ABOUT)
    assert (made.content, made.text) == ([text("MCP error: gone")], "MCP error: gone")
    assert (made.details.is_error, made.details.raw_content) == (True, [])


def test_result_text_joins_all_text_blocks() -> None:
    made = result_from_response(
        {"content": [text("a"), IMAGE, text("b"), {"type": "text"}]}, **ABOUT
    )
    assert made.text == "a\nb\n"


@pytest.mark.parametrize(
    ("schema", "omitted"),
    [
        ({"type": "string"}, True),
        ({"type": "null"}, False),
        ({"type": ["string", "null"]}, False),
        ({"type": ["string", "integer"]}, True),
        ({"type": "string", "nullable": True}, False),
        ({"enum": ["a"]}, True),
        ({"enum": ["a", None]}, False),
        ({"const": 1}, True),
        ({"const": None}, False),
        (False, True),
        (True, False),
        ({}, False),
        ({"$ref": "#/$defs/text"}, True),
        ({"$ref": "#/$defs/any"}, False),
        ({"$ref": "#/$defs/a~1b"}, True),
        ({"$ref": "#/$defs/none"}, False),
        ({"$ref": "other#/x"}, False),
        ({"allOf": [{}, {"type": "string"}]}, True),
        ({"allOf": [{}]}, False),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, False),
        ({"oneOf": [{"type": "string"}]}, True),
        ({"oneOf": []}, False),
        ({"$ref": "#/$defs/loop"}, False),
    ],
    ids=str,
)
def test_null_arguments_are_omitted_if_the_schema_forbids_null(schema: Any, omitted: bool) -> None:
    loop = {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/loop"}]}
    definitions = {"text": {"type": "string"}, "any": {}, "a/b": {"type": "string"}, "loop": loop}
    whole = {"properties": {"a": schema}, "$defs": definitions}
    assert normalize_arguments({"a": None, "b": 1}, whole) == (
        {"b": 1} if omitted else {"a": None, "b": 1}
    )


def test_null_is_sent_for_required_and_unknown_properties() -> None:
    schema = {"properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert normalize_arguments({"a": None, "b": None}, schema) == {"a": None, "b": None}
    assert normalize_arguments({"a": None}, None) == {"a": None}
    assert normalize_arguments({"a": ""}, {"properties": {"a": {"type": "string"}}}) == {"a": ""}
    assert normalize_arguments([1], schema) == {}
    assert normalize_arguments({"a": None}, {"properties": [], "required": "a"}) == {"a": None}


def test_at_most_two_hundred_subschemas_are_examined_for_null() -> None:
    def chain(length: int) -> dict[str, Any]:
        inner: dict[str, Any] = {"type": "string"}
        for _ in range(length - 1):
            inner = {"allOf": [inner]}
        return {"properties": {"a": inner}}

    assert normalize_arguments({"a": None}, chain(200)) == {}
    assert normalize_arguments({"a": None}, chain(201)) == {"a": None}
