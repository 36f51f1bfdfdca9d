"""Tools in the formats of model providers: schemas and dispatch, without their libraries."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from .tool import MCPTool
from .tool_result import ToolResult, result_from_error

__all__ = [
    "as_callables",
    "run_anthropic",
    "run_openai",
    "to_anthropic",
    "to_openai",
    "to_openai_responses",
]

Find = Callable[[str], MCPTool | None]


def to_openai(tools: Iterable[MCPTool]) -> list[dict[str, Any]]:
    """Return the `tools` of a chat completion."""
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def to_openai_responses(tools: Iterable[MCPTool]) -> list[dict[str, Any]]:
    """Return the `tools` of the Responses API."""
    return [{"type": "function", **_function(tool)} for tool in tools]


def _function(tool: MCPTool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def to_anthropic(tools: Iterable[MCPTool]) -> list[dict[str, Any]]:
    """Return the `tools` of a message."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in tools
    ]


async def run_openai(find: Find, call: Mapping[str, Any]) -> dict[str, Any]:
    """Run a tool call of a chat completion and return the message with its result."""
    function = call.get("function") or {}
    text = await _run(find, str(function.get("name")), function.get("arguments"))
    return {"role": "tool", "tool_call_id": call.get("id"), "content": text.text}


async def run_anthropic(find: Find, use: Mapping[str, Any]) -> dict[str, Any]:
    """Run a `tool_use` block and return the `tool_result` block."""
    result = await _run(find, str(use.get("name")), use.get("input"))
    content = [_anthropic_block(block) for block in result.content]
    answer = {"type": "tool_result", "tool_use_id": use.get("id"), "content": content}
    return {**answer, "is_error": True} if result.details.is_error else answer


def as_callables(tools: Iterable[MCPTool]) -> dict[str, Callable[..., Awaitable[str]]]:
    """Return asynchronous functions by name: keyword arguments in, the text of the result out."""

    def plain(tool: MCPTool) -> Callable[..., Awaitable[str]]:
        async def call(**arguments: Any) -> str:
            return (await tool.execute(arguments)).text

        call.__name__ = call.__qualname__ = tool.name
        call.__doc__ = tool.description
        return call

    return {tool.name: plain(tool) for tool in tools}


async def _run(find: Find, name: str, arguments: Any) -> ToolResult:
    tool = find(name)
    if tool is None:
        return result_from_error(f"unknown tool {name!r}", server_name="", mcp_tool_name=name)
    if isinstance(arguments, str):  # some providers send the arguments as text
        try:
            arguments = msgspec.json.decode(arguments or "{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
            return result_from_error(
                f"the arguments are not valid JSON: {exc}", server_name="", mcp_tool_name=name
            )
    return await tool.execute(arguments)


def _anthropic_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a content block. Kinds without an equivalent become text that contains their JSON."""
    match block.get("type"):
        case "text":
            return {"type": "text", "text": str(block.get("text", ""))}
        case "image":
            source = {
                "type": "base64",
                "media_type": block.get("mimeType"),
                "data": block.get("data"),
            }
            return {"type": "image", "source": source}
    return {"type": "text", "text": msgspec.json.encode(block).decode()}
