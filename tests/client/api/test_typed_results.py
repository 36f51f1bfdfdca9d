"""Tests of typed results of tools and prompts."""

import json
from typing import Any

import msgspec
import pytest

from fairlead import MCPServer
from fairlead.client.api.typed_results import Called, ToolCallResult, tool_error
from fairlead.errors import MCPToolError
from tests.support.in_memory_client import client_of

ERROR = {"type": "text", "text": json.dumps(MCPToolError("no", tool_name="t").to_dict())}


@pytest.mark.parametrize(
    ("content", "isError", "found"),
    [
        ([ERROR], True, True),
        ([{"type": "text", "text": "plain"}, {"type": "image"}, "odd", ERROR], True, True),
        ([{"type": "text", "text": "plain"}], True, False),
        ([ERROR], False, False),
        (None, True, False),
    ],
    ids=["first", "last", "none", "no error", "no content"],
)
def test_the_structured_error_of_a_tool_is_read_from_a_content_block(
    content: Any, isError: bool, found: bool
) -> None:
    error = tool_error({"content": content, "isError": isError})
    assert (error is not None) is found
    if error is not None:
        assert (error.message, error.tool_name) == ("no", "t")


async def test_a_typed_prompt_contains_its_messages_and_description() -> None:
    server = MCPServer("s")
    server.register_prompt("p", description="about p", template="hello")
    async with client_of(server) as client:
        made = await client.prompt("p")
        assert [(one.role, getattr(one.content, "text", None)) for one in made.messages] == [
            ("user", "hello")
        ]
        assert made.description == "about p"


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("structured", "data"),
    [
        ({"result": [1, 2]}, [1, 2]),
        ({"result": None}, None),
        ({"result": 1, "unit": "m"}, {"result": 1, "unit": "m"}),
        ({"n": 1}, {"n": 1}),
        ({}, {}),
        ([1], [1]),
        (None, None),
    ],
)
def test_result_data_is_the_structured_content_without_its_wrapper_object(
    structured: Any, data: Any
) -> None:
    received = {"content": [], "structuredContent": structured}
    assert ToolCallResult(received).data == data
    called = Called(content=[], structured=structured, result=ToolCallResult(received))
    assert called.data == data


@pytest.mark.parametrize(
    ("content", "joined"),
    [
        ([text("a"), {"type": "image", "data": ""}, text("b")], "a\nb"),
        ([{"type": "text"}, "odd", 1], ""),
        ([], ""),
        (None, ""),
        ("odd", ""),
    ],
)
def test_result_text_joins_all_text_blocks(content: Any, joined: str) -> None:
    assert ToolCallResult({"content": content}).text == joined


def test_a_result_without_structured_content_has_text_and_no_data() -> None:
    result = ToolCallResult({"content": [text('{"a":1}')]})
    assert (result.data, result.text, result.is_error) == (None, '{"a":1}', False)
    assert ToolCallResult({"content": [], "isError": True}).is_error


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        ([ERROR], "EXECUTION_ERROR", "no"),
        ([text(" plain\n"), text("text")], "EXECUTION_ERROR", "plain\n\ntext"),
        ([], "EXECUTION_ERROR", "the tool failed without an error message"),
        ([text('{"code":"NOT_FOUND","message":"gone"}')], "NOT_FOUND", "gone"),
        ([text('{"code":"unknown","message":"x"}')], "EXECUTION_ERROR", None),
    ],
)
def test_raise_for_error_raises_the_failure_of_a_tool_with_its_result(
    content: Any, code: str, message: str | None
) -> None:
    result = ToolCallResult({"content": content, "isError": True})
    called = Called(content=[], is_error=True, result=result)
    for failed in (result, called):
        with pytest.raises(MCPToolError) as caught:
            failed.raise_for_error()
        assert caught.value.code == code
        assert str(caught.value) == (message or result.text)
        assert caught.value.result is result


def test_raise_for_error_returns_a_successful_result_itself() -> None:
    result = ToolCallResult({"content": [text("1")]})
    called = Called(content=[], result=result)
    assert result.raise_for_error() is result
    assert called.raise_for_error() is called
    assert MCPToolError("raised by a tool").result is None


@pytest.mark.covers("CLT-06")
async def test_the_result_of_a_call_is_a_dict_with_attributes() -> None:
    server = MCPServer("s")

    @server.tool(output_schema={"type": "object"})
    def measure() -> dict[str, int]:
        return {"result": 7}

    async with client_of(server) as client:
        result = await client.call_tool("measure")
        received = msgspec.json.decode(await client.request("tools/call", {"name": "measure"}))
        assert (result, result.data, result.is_error) == (received, 7, False)
        assert result.text == received["content"][0]["text"]
        assert json.loads(json.dumps(result)) == msgspec.json.decode(msgspec.json.encode(result))
        assert (await client.call("measure")).data == 7
        envelope = await client.call_tool("measure", errors="envelope")
        assert envelope["result"] == received
