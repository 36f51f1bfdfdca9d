"""Tools in the formats of model providers."""

import asyncio
from typing import Any, ClassVar

from fairlead.manager.tools.provider_adapters import run_anthropic
from fairlead.manager.tools.tool import ProxyTool
from fairlead.manager.tools.tool_result import ToolResult, result_from_response


class Tool:
    """A tool that returns its arguments."""

    name = label = "mcp_s_show"
    description = "shows"
    parameters: ClassVar[dict[str, Any]] = {"type": "object"}
    mcp_server_name, mcp_tool_name = "s", "show"

    def __init__(self, *content: dict[str, Any]) -> None:
        self.content = list(content)
        self.called: list[Any] = []

    async def execute(self, arguments: Any = None) -> ToolResult:
        self.called.append(arguments)
        result = {"content": self.content}
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


async def test_a_proxy_tool_returns_an_error_on_timeout_or_if_its_tool_is_gone() -> None:
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
