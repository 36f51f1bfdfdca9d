"""Tools of managed servers for the OpenAI Agents SDK; requires the extra `openai-agents`."""

from collections.abc import Mapping
from typing import Any

try:
    from agents.mcp import MCPServer
    from mcp.types import CallToolResult, GetPromptResult, ListPromptsResult, Tool
except ImportError as exc:
    raise ImportError(
        "fairlead.agents.openai needs openai-agents: run `pip install 'fairlead[openai-agents]'`"
    ) from exc

from ..client import MCPClient
from ..manager.manager import MCPManager
from ..manager.tools.tool import MCPTool
from ..wire import to_json
from .content_parts import MediaPart, TextPart, content_parts
from .tool_source import ToolSource

__all__ = ["FairleadServer"]


class FairleadServer(MCPServer):
    """The tools of a manager or client as one server of an agent, looked up for each turn.

    agent = Agent("assistant", mcp_servers=[FairleadServer(manager)])

    The manager or client owns the connections. Servers' questions are passed to its `on_elicit`,
    because the SDK can interrupt a run only before a call.
    """

    def __init__(
        self, source: MCPManager | MCPClient, *, name: str = "fairlead", **options: Any
    ) -> None:
        """Create a server for an agent.

        `options` are passed to the SDK's `MCPServer`, such as `require_approval`.
        """
        super().__init__(**options)
        self._source = ToolSource(source)
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def connect(self) -> None:
        """Do nothing: the source connects its servers."""

    async def cleanup(self) -> None:
        """Do nothing: the source is closed by its owner."""

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[Tool]:
        """Return the currently available tools."""
        return [_definition(tool) for tool in await self._source.tools()]

    async def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None,
        meta: dict[str, Any] | None = None,
    ) -> CallToolResult:
        """Call a tool. A failure is a result with `isError`. `meta` is not sent."""
        result = await self._source.execute(tool_name, arguments or {})
        details, pairs = result.details, zip(result.content, content_parts(result), strict=True)
        return CallToolResult.model_validate(
            {
                "content": [_block(block, part) for block, part in pairs],
                "structuredContent": details.structured_content,
                "isError": details.is_error,
                "_meta": details.meta,
            }
        )

    async def list_prompts(self) -> ListPromptsResult:
        """Return no prompts: agents use only the tools."""
        return ListPromptsResult(prompts=[])

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None
    ) -> GetPromptResult:
        raise NotImplementedError("call `get_prompt` of the manager or client instead")


def _definition(tool: MCPTool) -> Tool:
    # A hint of the wrong type would make the SDK reject the tools of all servers.
    hints = {key: hint for key, hint in tool.annotations.items() if isinstance(hint, bool)}
    definition = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.parameters,
        "annotations": hints or None,
    }
    return Tool.model_validate(definition)


def _block(block: Mapping[str, Any], part: TextPart | MediaPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if part.kind == "file":
        return {"type": "text", "text": to_json(block).decode()}
    return {"type": part.kind, "data": part.base64, "mimeType": part.mime_type}
