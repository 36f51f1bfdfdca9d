"""Tool results for models and hosts, and provider formats."""

import asyncio
from typing import Any

import pytest

from fairlead.errors import ChannelClosed, RpcError
from fairlead.manager.tools.provider_adapters import (
    run_anthropic,
    run_openai,
    to_anthropic,
    to_openai,
    to_openai_responses,
)
from fairlead.manager.tools.tool import MCPTool, ProxyTool
from fairlead.manager.tools.tool_callables import as_callables
from fairlead.manager.tools.tool_result import normalize_arguments
from fairlead.manager.tools.tool_session import ToolSession, create_tool_session

IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


SEEN: dict[int, list[Any]] = {}


def tool(result: Any, **definition: Any) -> MCPTool:
    async def call(server: str, name: str, arguments: Any, **options: Any) -> Any:
        seen.append(arguments)
        if isinstance(result, BaseException):
            raise result
        return result

    seen: list[Any] = []
    made = MCPTool(
        "mcp_s_t",
        "s",
        {"name": "t", "description": "does it", **definition},
        call,
        provider="claude",
        provider_name="Claude Code",
    )
    SEEN[id(made)] = seen
    return made


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


@pytest.mark.covers("HST-53")
async def test_a_tool_result_contains_all_parts_of_the_response() -> None:
    whole = {
        **said("hi", structuredContent={"n": 1}, _meta={"k": "v"}),
    }
    whole["content"].append(IMAGE)
    result = await tool(whole).execute({})
    assert result.content == whole["content"]
    details = result.details
    assert (details.server_name, details.mcp_tool_name) == ("s", "t")
    assert (details.structured_content, details.meta) == ({"n": 1}, {"k": "v"})
    assert (details.provider, details.provider_name) == ("claude", "Claude Code")
    assert details.raw_content == whole["content"]
    assert not details.is_error


async def test_structured_content_without_text_becomes_text_for_the_model() -> None:
    result = await tool({"content": [], "structuredContent": {"n": 1}}).execute({})
    assert result.text == '{"n":1}'
    assert (result.details.raw_content, result.details.structured_content) == ([], {"n": 1})
    assert (await tool({"content": []}).execute({})).content == []


@pytest.mark.covers("HST-54")
async def test_failures_become_result_content_and_a_cancellation_is_propagated() -> None:
    failed = await tool(said("out of paint", isError=True)).execute()
    assert failed.text == "MCP error: out of paint"
    assert failed.details.is_error
    only_image = await tool({"content": [IMAGE], "isError": True}).execute()
    assert only_image.content[0]["text"].startswith("MCP error: ")
    assert only_image.content[1] == IMAGE
    lost = await tool(ChannelClosed("it went away")).execute()
    assert lost.text == 'MCP error: server "s": Transport closed: it went away'
    refused = await tool(RpcError(-32602, "no such tool")).execute()
    assert refused.text == "MCP error: no such tool (code -32602)"
    with pytest.raises(asyncio.CancelledError):
        await tool(asyncio.CancelledError()).execute()


@pytest.mark.covers("HST-56")
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("text", {}),
        (None, {}),
        ([1], {}),
        ({"a": "", "b": "", "c": "", "d": []}, {"a": "", "b": "", "c": "", "d": []}),
        ({"a": None, "e": {}, "x": None}, {"a": None, "e": {}, "x": None}),
        ({"b": None, "c": None, "d": None, "e": None}, {"c": None, "d": None}),
        ({"f": None, "g": None, "h": None, "i": None}, {"g": None, "h": None, "i": None}),
        ({"j": None, "k": None, "l": None, "m": None}, {"l": None, "m": None}),
        ({"b": {"b": None}}, {"b": {"b": None}}),
    ],
)
def test_arguments_are_sent_unchanged_except_for_forbidden_nulls(
    given: Any, sent: dict[str, Any]
) -> None:
    schema = {
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "string"},
            "c": {"type": ["string", "null"]},
            "d": {},
            "e": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/number"}]},
            "f": {"enum": ["x", "y"]},
            "g": {"enum": ["x", None]},
            "h": {"oneOf": [{"type": "string"}, {"type": "null"}]},
            "i": {"type": "string", "nullable": True},
            "j": {"allOf": [{}, {"const": 1}]},
            "k": False,
            "l": {"$ref": "#/$defs/circle"},
            "m": {"$ref": "https://example.com/elsewhere"},
        },
        "required": ["a"],
        "$defs": {"number": {"type": "number"}, "circle": {"$ref": "#/$defs/circle"}},
    }
    assert normalize_arguments(given, schema) == sent
    assert normalize_arguments({"a": "", "b": None}, "no schema") == {"a": "", "b": None}


@pytest.mark.covers("HST-57")
def test_the_path_of_a_tool_contains_its_server_and_program() -> None:
    assert tool(said("")).path == "mcp:s via Claude Code"

    async def call(*_: Any, **__: Any) -> Any: ...

    assert MCPTool("n", "s", {"name": "t"}, call).path == "mcp:t"


def test_a_schema_that_is_not_of_an_object_becomes_an_empty_object_schema() -> None:
    for schema in (
        *(None, 7, "x", [], {"properties": {}}, {"type": "object"}, {"type": "string"}),
        *({"type": 5}, {"type": ["object", "null"]}, {"type": "object", "properties": []}),
    ):
        made = tool(said(""), inputSchema=schema).parameters
        assert (made["type"], made["properties"]) == ("object", {})
    whole = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    assert tool(said(""), inputSchema=whole).parameters is whole
    assert tool(said(""), inputSchema={**whole, "type": ["object"]}).parameters == whole


@pytest.mark.covers("HST-58")
async def test_a_proxy_tool_calls_the_current_tool_of_the_same_name() -> None:
    tools = {"mcp_s_t": tool(said("first"))}
    proxy = ProxyTool(tools["mcp_s_t"], tools.get)
    assert (await proxy.execute()).text == "first"
    tools["mcp_s_t"] = tool(said("second"))
    assert (await proxy.execute()).text == "second"
    tools.clear()
    assert (await proxy.execute()).text.startswith("MCP error: ")


async def test_tools_and_calls_are_converted_to_the_formats_of_providers() -> None:
    made = tool(said("hi"), inputSchema={"type": "object", "properties": {"a": {}}})
    (openai,), (anthropic,) = to_openai([made]), to_anthropic([made])
    assert openai["function"]["parameters"] == anthropic["input_schema"] == made.parameters
    assert to_openai_responses([made])[0]["name"] == "mcp_s_t"
    find = {"mcp_s_t": made}.get
    asked = {"id": "1", "function": {"name": "mcp_s_t", "arguments": '{"a": 1}'}}
    assert await run_openai(find, asked) == {"role": "tool", "tool_call_id": "1", "content": "hi"}
    assert SEEN[id(made)] == [{"a": 1}]
    broken = {"id": "1", "function": {"name": "mcp_s_t", "arguments": "{"}}
    assert "not valid JSON" in (await run_openai(find, broken))["content"]
    used = await run_anthropic(find, {"id": "2", "name": "mcp_s_t", "input": {}})
    assert used["content"] == [{"type": "text", "text": "hi"}]
    nobody = await run_anthropic(find, {"id": "3", "name": "nobody", "input": {}})
    assert nobody["is_error"]
    assert await as_callables([made])["mcp_s_t"](a=1) == "hi"


@pytest.mark.covers("HST-41")
async def test_the_previous_tools_stay_bound_if_binding_new_ones_fails() -> None:
    class Registry:
        def __init__(self) -> None:
            self.names: list[str] = []

        def add(self, made: Any) -> None:
            if made.name == "bad":
                raise ValueError("no")
            self.names.append(made.name)

        def remove(self, name: str) -> None:
            if name in self.names:
                self.names.remove(name)

    async def call(*_: Any, **__: Any) -> Any: ...

    registry = Registry()
    registry.names = ["own"]
    session = ToolSession(registry=registry)
    good = [MCPTool(name, "s", {"name": name}, call) for name in ("a", "b")]
    await session.refresh_mcp_tools(good)
    assert registry.names == ["own", "a", "b"]
    with pytest.raises(ValueError, match="no"):
        await session.refresh_mcp_tools([*good, MCPTool("bad", "s", {"name": "bad"}, call)])
    assert registry.names == ["own", "a", "b"]
    await session.refresh_mcp_tools(good[:1])
    assert registry.names == ["own", "a"]
    await session.close()
    assert registry.names == ["own"]


@pytest.mark.covers("HST-04")
async def test_a_session_with_mcp_disabled_has_no_manager_and_no_tools() -> None:
    async with await create_tool_session(enable_mcp=False) as session:
        assert session.mcp_manager is None
        assert session.mcp_tools == []


def test_the_examination_of_a_schema_with_circular_unions_ends() -> None:
    again = {"$ref": "#/$defs/again"}
    schema = {
        "properties": {"text": again},
        "$defs": {"again": {"allOf": [again, again], "anyOf": [again, again]}},
    }
    assert normalize_arguments({"text": None}, schema) == {"text": None}
