"""What a model and its host get from a tool: content to read, and details to keep."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ..client.values import tool_error
from ..wire import to_json

__all__ = ["ToolDetails", "ToolResult", "failed", "normalized", "succeeded"]


class ToolDetails(Struct, frozen=True, kw_only=True):
    """Everything about a result that a model need not read."""

    server_name: str
    mcp_tool_name: str
    raw_content: list[dict[str, Any]] = []
    structured_content: Any = None
    meta: dict[str, Any] | None = None
    is_error: bool = False
    provider: str | None = None  # the program whose configuration named the server
    provider_name: str | None = None


class ToolResult(Struct, frozen=True):
    """Content blocks for the model, and the details behind them."""

    content: list[dict[str, Any]]
    details: ToolDetails

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(str(b.get("text", "")) for b in self.content if b.get("type") == "text")


def succeeded(result: Mapping[str, Any], **about: Any) -> ToolResult:
    """A result of a tool, which may have failed in its own way."""
    blocks = [block for block in result.get("content") or () if isinstance(block, dict)]
    is_error = result.get("isError") is True
    meta = result.get("_meta")
    details = ToolDetails(
        raw_content=blocks,
        structured_content=result.get("structuredContent"),
        meta=meta if isinstance(meta, dict) else None,
        is_error=is_error,
        **about,
    )
    if is_error:
        return ToolResult(_as_error(result, blocks), details)
    if not blocks and details.structured_content is not None:  # a model reads only content
        text = to_json(details.structured_content).decode()
        return ToolResult([{"type": "text", "text": text}], details)
    return ToolResult(blocks, details)


def failed(problem: str, **about: Any) -> ToolResult:
    """What a model reads when the call itself failed."""
    text = {"type": "text", "text": f"MCP error: {problem}"}
    return ToolResult([text], ToolDetails(is_error=True, raw_content=[], **about))


def _as_error(result: Mapping[str, Any], blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same blocks, the first text of which begins with `Error: `."""
    error = tool_error(result)
    if error is not None and len(blocks) == 1:
        said = {"type": "text", "text": f"Error: {error.message}"}
        hint = error.suggestion
        return [said, {"type": "text", "text": hint}] if hint else [said]
    for index, block in enumerate(blocks):
        if block.get("type") == "text":
            text = {**block, "text": f"Error: {block.get('text', '')}"}
            return [*blocks[:index], text, *blocks[index + 1 :]]
    return [{"type": "text", "text": "Error: the tool failed"}, *blocks]


def normalized(arguments: Any, schema: Any) -> dict[str, Any]:
    """Arguments as models write them, as tools expect them.

    What is no object is none; empty placeholders of optional declared properties are left out;
    everything else goes unchanged.
    """
    if not isinstance(arguments, Mapping):
        return {}
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    required = schema.get("required") if isinstance(schema, Mapping) else None
    declared = properties if isinstance(properties, Mapping) else {}
    needed = required if isinstance(required, list) else []
    return {
        name: value
        for name, value in arguments.items()
        if not (name in declared and name not in needed and _is_placeholder(value))
    }


def _is_placeholder(value: Any) -> bool:
    return value is None or value == "" or value == {}
