"""Tools in model providers' formats: schemas and dispatch, without the providers' libraries.

Tool calls may be dicts or objects from the packages `openai` and `anthropic`. The `source` of a
tool is a manager, a client, or a function that returns the tool with a given name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from .model_blocks import model_blocks
from .tool import MCPTool
from .tool_lookup import ToolLookup, find_tool
from .tool_result import ToolResult, result_from_error

__all__ = [
    "run_anthropic",
    "run_openai",
    "run_openai_messages",
    "run_openai_responses",
    "to_anthropic",
    "to_openai",
    "to_openai_responses",
]

# a manager's tool, or a definition as returned by `MCPClient.list_tools`
AnyTool = MCPTool | Mapping[str, Any]

_ANTHROPIC_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def to_openai(tools: Iterable[AnyTool]) -> list[dict[str, Any]]:
    """Return the `tools` parameter for a chat completion."""
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def to_openai_responses(tools: Iterable[AnyTool]) -> list[dict[str, Any]]:
    """Return the `tools` parameter for the Responses API."""
    return [{"type": "function", **_function(tool)} for tool in tools]


def to_anthropic(tools: Iterable[AnyTool]) -> list[dict[str, Any]]:
    """Return the `tools` parameter for an Anthropic message."""
    return [{"input_schema": one.pop("parameters"), **one} for one in map(_function, tools)]


async def run_openai(source: ToolLookup, call: Any) -> dict[str, Any]:
    """Run a tool call from a chat completion and return the `tool` message with its result.

    A message with the role `tool` can only contain text, so images and audio are named in it;
    `run_openai_messages` also returns them.
    """
    return (await run_openai_messages(source, call))[0]


async def run_openai_messages(source: ToolLookup, call: Any) -> list[dict[str, Any]]:
    """Run a tool call from a chat completion and return the messages with its result.

    The first message has the role `tool`. Images and audio follow in a message with the role
    `user`, which must come after the `tool` messages of all calls.
    """
    function = _field(call, "function") or {}
    result = await _run(source, _field(function, "name"), _field(function, "arguments"))
    blocks = model_blocks(result)
    text = "\n".join(map(_as_text, blocks))
    message = {"role": "tool", "tool_call_id": _field(call, "id"), "content": text}
    media = [part for block in blocks if (part := _chat_part(block)) is not None]
    return [message, {"role": "user", "content": media}] if media else [message]


async def run_openai_responses(source: ToolLookup, call: Any) -> dict[str, Any]:
    """Run a `function_call` item from the Responses API and return its `function_call_output`."""
    result = await _run(source, _field(call, "name"), _field(call, "arguments"))
    blocks = model_blocks(result)
    output: str | list[dict[str, Any]] = [_responses_part(block) for block in blocks]
    if all(block.get("type") == "text" for block in blocks):
        output = "\n".join(map(_as_text, blocks))
    return {"type": "function_call_output", "call_id": _field(call, "call_id"), "output": output}


async def run_anthropic(source: ToolLookup, use: Any) -> dict[str, Any]:
    """Run a `tool_use` block and return its `tool_result` block."""
    result = await _run(source, _field(use, "name"), _field(use, "input"))
    content = [_anthropic_block(block) for block in model_blocks(result)]
    answer = {"type": "tool_result", "tool_use_id": _field(use, "id"), "content": content}
    return {**answer, "is_error": True} if result.details.is_error else answer


def _function(tool: AnyTool) -> dict[str, Any]:
    if isinstance(tool, Mapping):
        tool = MCPTool(tool["name"], "", tool, _never_called)
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


async def _never_called(*_: object) -> Any:
    raise AssertionError("only the definition is used")


def _field(given: Any, name: str) -> Any:
    """Return a member of a dict or an attribute of an object, or None."""
    return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)


async def _run(source: ToolLookup, name: Any, arguments: Any) -> ToolResult:
    tool = find_tool(source, str(name))
    if tool is None:
        return result_from_error(f"unknown tool {name!r}", server_name="", mcp_tool_name=str(name))
    if isinstance(arguments, str):  # some providers send the arguments as a JSON string
        try:
            arguments = msgspec.json.decode(arguments or "{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
            return result_from_error(
                f"the arguments are not valid JSON: {exc}", server_name="", mcp_tool_name=str(name)
            )
    return await tool.execute(arguments)


def _as_text(block: Mapping[str, Any]) -> str:
    """Return a block as text. Binary data is replaced with a description."""
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio" as kind:
            return f"[{kind}: {block.get('mimeType')}]"
        case "resource_link":
            label = block.get("title") or block.get("name") or "link"
            return f"[{label}]({block.get('uri')})"
        case "resource" if isinstance(resource := block.get("resource"), Mapping):
            if isinstance(resource.get("text"), str):
                return str(resource["text"])
            return f"[resource: {resource.get('uri')}, {resource.get('mimeType')}]"
    return msgspec.json.encode(block).decode()


def _data_of(block: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the media type and base64 data of an image, an audio block or a binary resource."""
    holder, member = block, "data"
    if block.get("type") == "resource":
        holder, member = block.get("resource") or {}, "blob"
    data = holder.get(member) if isinstance(holder, Mapping) else None
    if not isinstance(data, str):
        return None
    return str(holder.get("mimeType") or "application/octet-stream"), data


def _chat_part(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an image or audio block as a chat completion content part; None for other blocks."""
    if (found := _data_of(block)) is None:
        return None
    kind, data = found
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
    if kind in ("audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3"):
        form = "wav" if kind.endswith("wav") else "mp3"
        return {"type": "input_audio", "input_audio": {"data": data, "format": form}}
    return {"type": "file", "file": _file(kind, data)}


def _responses_part(block: Mapping[str, Any]) -> dict[str, Any]:
    if (found := _data_of(block)) is None:
        return {"type": "input_text", "text": _as_text(block)}
    kind, data = found
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": f"data:{kind};base64,{data}", "detail": "auto"}
    return {"type": "input_file", **_file(kind, data)}


def _file(kind: str, data: str) -> dict[str, str]:
    name = f"result.{kind.rpartition('/')[2].partition('+')[0]}"
    return {"filename": name, "file_data": f"data:{kind};base64,{data}"}


def _anthropic_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a content block.

    A block without an equivalent becomes text that contains its JSON.
    """
    if (found := _data_of(block)) is None:
        return {"type": "text", "text": _as_text(block)}
    kind, data = found
    source = {"type": "base64", "media_type": kind, "data": data}
    if kind in _ANTHROPIC_IMAGES:
        return {"type": "image", "source": source}
    if kind == "application/pdf":
        return {"type": "document", "source": source}
    return {"type": "text", "text": msgspec.json.encode(block).decode()}
