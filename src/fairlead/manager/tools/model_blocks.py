"""Content blocks of a result for a model, including structured content that no text repeats."""

from typing import Any

import msgspec

from .tool_result import ToolResult

__all__ = ["model_blocks"]


def model_blocks(result: ToolResult) -> list[dict[str, Any]]:
    """Return the content blocks, plus the structured content if no text block repeats it."""
    blocks, structured = list(result.content), result.details.structured_content
    if structured is None or _is_repeated(structured, blocks, result):
        return blocks
    return [*blocks, {"type": "text", "text": msgspec.json.encode(structured).decode()}]


def _is_repeated(structured: Any, blocks: list[dict[str, Any]], result: ToolResult) -> bool:
    """Return True if text blocks contain the structured content, or the error that it describes."""
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    if result.details.is_error:
        return bool(texts)
    values = [_json_value(text) for text in texts]
    # Servers wrap a value that is not an object, and send each item of a list as a block.
    wrapped = structured.get("result") if isinstance(structured, dict) else None
    return structured in values or (wrapped is not None and wrapped in (*texts, *values, values))


def _json_value(text: str) -> Any:
    """Decode JSON; return the text itself if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
