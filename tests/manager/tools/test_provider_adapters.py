"""Tools in the formats of model providers."""

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from fairlead import MCPClient, MCPManager, MCPServer
from fairlead.manager.tools.provider_adapters import (
    run_anthropic,
    run_openai,
    run_openai_messages,
    run_openai_responses,
    to_anthropic,
    to_openai,
    to_openai_responses,
)
from fairlead.manager.tools.tool import ProxyTool
from fairlead.manager.tools.tool_result import ToolResult, result_from_response
from tests.support.optional_packages import import_or_skip


class Tool:
    """A tool that returns its arguments."""

    name = label = "mcp_s_show"
    description = "shows"
    parameters: ClassVar[dict[str, Any]] = {"type": "object"}
    mcp_server_name, mcp_tool_name = "s", "show"

    def __init__(self, *content: dict[str, Any], structured: Any = None) -> None:
        self.content, self.structured = list(content), structured
        self.called: list[Any] = []

    async def execute(self, arguments: Any = None) -> ToolResult:
        self.called.append(arguments)
        result = {"content": self.content, "structuredContent": self.structured}
        return result_from_response(result, server_name="s", mcp_tool_name="show")


async def test_content_blocks_are_converted_to_text_and_images() -> None:
    audio = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    tool = Tool({"type": "text", "text": "hello"}, image, audio)
    use = {"type": "tool_use", "id": "t1", "name": "mcp_s_show", "input": {"a": 1}}
    block = await run_anthropic({tool.name: tool}.get, use)  # type: ignore[arg-type]
    assert tool.called == [{"a": 1}]
    assert block["tool_use_id"] == "t1"
    assert block["content"] == [
        {"type": "text", "text": "hello"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
        },
        {"type": "text", "text": '{"type":"audio","data":"AA==","mimeType":"audio/wav"}'},
    ]


async def test_a_proxy_tool_returns_an_error_on_timeout_or_if_its_tool_was_removed() -> None:
    class Slow(Tool):
        async def execute(self, arguments: Any = None) -> ToolResult:

            await asyncio.Event().wait()
            raise AssertionError

    tool = Slow()
    found: dict[str, Any] = {tool.name: tool}
    proxy = ProxyTool(tool, found.get)  # type: ignore[arg-type]
    late = await proxy.execute(timeout=0.01)
    assert "no response within 0.01 s" in late.text
    found.clear()
    assert "mcp_s_show is no longer available" in (await proxy.execute()).text
    assert (proxy.description, proxy.parameters) == ("shows", {"type": "object"})


TEXT = {"type": "text", "text": "hello"}
IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "BB==", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "https://a/b", "name": "report"}
PDF = {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": "CC=="}
PAGE = {"uri": "file:///a.txt", "text": "page"}
IMAGE_URL, AUDIO_URL = "data:image/png;base64,AA==", "data:audio/wav;base64,BB=="
PDF_URL = "data:application/pdf;base64,CC=="
EVERYTHING = (
    TEXT,
    IMAGE,
    AUDIO,
    LINK,
    {"type": "resource", "resource": PDF},
    {"type": "resource", "resource": PAGE},
)


def finding(tool: Tool) -> Any:
    return {tool.name: tool}.get


async def test_a_chat_completion_contains_text_followed_by_images_audio_and_files() -> None:
    find = finding(Tool(*EVERYTHING))
    call = {"id": "c1", "function": {"name": "mcp_s_show", "arguments": '{"a": 1}'}}
    said = [
        "hello",
        "[image: image/png]",
        "[audio: audio/wav]",
        "[report](https://a/b)",
        "[resource: file:///a.pdf, application/pdf]",
        "page",
    ]
    message = {"role": "tool", "tool_call_id": "c1", "content": "\n".join(said)}
    assert await run_openai(find, call) == message
    assert await run_openai_messages(find, call) == [
        message,
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": IMAGE_URL}},
                {"type": "input_audio", "input_audio": {"data": "BB==", "format": "wav"}},
                {"type": "file", "file": {"filename": "result.pdf", "file_data": PDF_URL}},
            ],
        },
    ]
    assert len(await run_openai_messages(finding(Tool(TEXT)), call)) == 1


async def test_a_response_contains_each_content_block_as_an_input_part() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "mcp_s_show", "arguments": "{}"}
    output = await run_openai_responses(finding(Tool(*EVERYTHING)), call)
    assert output == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": [
            {"type": "input_text", "text": "hello"},
            {"type": "input_image", "image_url": IMAGE_URL, "detail": "auto"},
            {"type": "input_file", "filename": "result.wav", "file_data": AUDIO_URL},
            {"type": "input_text", "text": "[report](https://a/b)"},
            {"type": "input_file", "filename": "result.pdf", "file_data": PDF_URL},
            {"type": "input_text", "text": "page"},
        ],
    }
    plain = await run_openai_responses(finding(Tool(TEXT, TEXT)), call)
    assert plain["output"] == "hello\nhello"


async def test_an_anthropic_message_contains_documents_links_and_structured_content() -> None:
    use = {"id": "t1", "name": "mcp_s_show", "input": {}}
    tool = Tool({"type": "resource", "resource": PDF}, LINK, structured={"n": 1})
    block = await run_anthropic(finding(tool), use)
    source = {"type": "base64", "media_type": "application/pdf", "data": "CC=="}
    assert block["content"] == [
        {"type": "document", "source": source},
        {"type": "text", "text": "[report](https://a/b)"},
        {"type": "text", "text": '{"n":1}'},
    ]


@pytest.mark.parametrize(
    ("texts", "structured", "extra"),
    [
        (["It is 21 degrees."], {"degrees": 21}, ['{"degrees":21}']),
        (['{ "degrees": 21 }'], {"degrees": 21}, []),
        (["hello"], {"result": "hello"}, []),
        (["21"], {"result": 21}, []),
        (["1", "two"], {"result": [1, "two"]}, []),
        (["one item"], {"result": [1, 2]}, ['{"result":[1,2]}']),
        (["done"], {"result": None}, ['{"result":null}']),
    ],
)
async def test_structured_content_is_added_unless_a_text_repeats_it(
    texts: list[str], structured: Any, extra: list[str]
) -> None:
    blocks = [{"type": "text", "text": text} for text in texts]
    find = finding(Tool(IMAGE, *blocks, structured=structured))
    shown = [{"type": "text", "text": text} for text in (*texts, *extra)]
    use = {"id": "t1", "name": "mcp_s_show", "input": {}}
    assert (await run_anthropic(find, use))["content"][1:] == shown
    call = {"id": "c1", "function": {"name": "mcp_s_show", "arguments": "{}"}}
    said = "\n".join(["[image: image/png]", *texts, *extra])
    assert (await run_openai(find, call))["content"] == said


async def test_results_have_the_types_of_the_packages_openai_and_anthropic() -> None:
    openai = import_or_skip("openai.types.chat", needs="openai")
    responses = import_or_skip("openai.types.responses", needs="openai")
    inputs = import_or_skip("openai.types.responses.response_input_param", needs="openai")
    anthropic = import_or_skip("anthropic.types", needs="anthropic")
    from pydantic import TypeAdapter

    find = finding(Tool(*EVERYTHING, structured={"n": 1}))
    call = openai.ChatCompletionMessageFunctionToolCall.model_validate(
        {"id": "c1", "type": "function", "function": {"name": "mcp_s_show", "arguments": "{}"}}
    )
    tool, user = await run_openai_messages(find, call)
    assert tool["content"].endswith('\n{"n":1}')
    checked = TypeAdapter(openai.ChatCompletionToolMessageParam).validate_python(tool)
    assert checked["tool_call_id"] == "c1"
    TypeAdapter(openai.ChatCompletionUserMessageParam).validate_python(user)

    item = responses.ResponseFunctionToolCall(
        type="function_call", call_id="c2", name="mcp_s_show", arguments="{}"
    )
    output = await run_openai_responses(find, item)
    assert output["output"][-1] == {"type": "input_text", "text": '{"n":1}'}
    TypeAdapter(inputs.FunctionCallOutput).validate_python(output)

    use = anthropic.ToolUseBlock(type="tool_use", id="t1", name="mcp_s_show", input={})
    block = await run_anthropic(find, use)
    assert block["content"][-1] == {"type": "text", "text": '{"n":1}'}
    TypeAdapter(anthropic.ToolResultBlockParam).validate_python(block)


async def test_tool_calls_may_be_provider_objects_instead_of_dicts() -> None:
    tool = Tool(TEXT)
    function = SimpleNamespace(name=tool.name, arguments='{"a":1}')
    chat = await run_openai(finding(tool), SimpleNamespace(id="c1", function=function))
    assert (chat["tool_call_id"], chat["content"]) == ("c1", "hello")
    item = SimpleNamespace(call_id="c2", name=tool.name, arguments='{"a":1}')
    assert (await run_openai_responses(finding(tool), item))["call_id"] == "c2"
    use = SimpleNamespace(id="t1", name=tool.name, input={"a": 1})
    assert (await run_anthropic(finding(tool), use))["tool_use_id"] == "t1"
    assert tool.called == [{"a": 1}] * 3


async def test_a_failed_call_becomes_text_for_every_provider() -> None:
    call = {"id": "c", "call_id": "c", "name": "no", "arguments": "{}", "input": {}}
    chat = await run_openai(finding(Tool()), {**call, "function": call})
    assert chat["content"] == "MCP error: unknown tool 'no'"
    response = await run_openai_responses(finding(Tool()), call)
    assert response["output"] == "MCP error: unknown tool 'no'"
    assert (await run_anthropic(finding(Tool()), call))["is_error"]
    broken = {**call, "name": "mcp_s_show", "arguments": "{"}
    text = (await run_openai_responses(finding(Tool()), broken))["output"]
    assert text.startswith("MCP error: the arguments are not valid JSON: ")


def test_tool_definitions_of_a_client_are_converted_for_every_provider() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    listed = [{"name": "add", "description": "adds", "inputSchema": schema}]
    function = {"name": "add", "description": "adds", "parameters": schema}
    assert to_openai(listed) == [{"type": "function", "function": function}]
    assert to_openai_responses(listed) == [{"type": "function", **function}]
    assert to_anthropic(listed) == [{"name": "add", "description": "adds", "input_schema": schema}]


async def test_model_tool_calls_run_with_a_client_or_a_manager(tmp_path: Path) -> None:
    server = MCPServer("maths")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    use = {"id": "t1", "name": "add", "input": {"a": 1, "b": 2}}
    three = [{"type": "text", "text": "3"}]
    async with MCPClient.connect_inprocess(server) as client:
        assert [tool["name"] for tool in to_anthropic(await client.list_tools())] == ["add"]
        assert (await run_anthropic(client, use))["content"] == three
        unknown = await run_anthropic(client, {**use, "name": "ad"})
        assert unknown["is_error"]
        assert "did you mean 'add'" in unknown["content"][0]["text"]
    async with MCPManager() as manager:
        await manager.connect_servers({"maths": numbers_entry(tmp_path)})
        found = await run_anthropic(manager, {**use, "name": "mcp_maths_add"})
        assert found["content"] == three
    wrong: Any = [manager]
    with pytest.raises(TypeError, match="^expected a manager, a client or a function, not "):
        await run_anthropic(wrong, use)


def numbers_entry(folder: Path) -> dict[str, Any]:
    program = folder / "numbers_server.py"
    program.write_text(
        "from fairlead import MCPServer\n"
        "server = MCPServer('maths')\n"
        "server.tool('add')(lambda a, b: a + b)\n"
        "server.run()\n"
    )
    return {"command": sys.executable, "args": [str(program)]}
