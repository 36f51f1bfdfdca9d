"""Content of results as text and media, from which adapters build each framework's types."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from ..manager.tools.tool_result import ToolResult
from ..wire import to_json

__all__ = ["MediaPart", "TextPart", "content_parts", "result_artifact"]


class TextPart(Struct, frozen=True):
    """Text for the model."""

    text: str


class MediaPart(Struct, frozen=True):
    """An image, a recording or another file."""

    kind: Literal["image", "audio", "file"]
    mime_type: str
    base64: str

    @property
    def data(self) -> bytes:
        return base64.b64decode(self.base64)


def content_parts(result: ToolResult) -> list[TextPart | MediaPart]:
    """Return the content of a result.

    A block that is neither text nor media becomes text that contains its JSON.
    """
    return [_part(block) for block in result.content]


def result_artifact(result: ToolResult) -> dict[str, Any]:
    """Return the members of a result that are for the program and not for the model."""
    details = result.details
    return {
        "structured_content": details.structured_content,
        "content": details.raw_content,
        "meta": details.meta,
        "is_error": details.is_error,
        "server": details.server_name,
        "tool": details.mcp_tool_name,
    }


def _part(block: Mapping[str, Any]) -> TextPart | MediaPart:
    match block:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "image" | "audio" as kind, "data": str(data), "mimeType": str(mime)}:
            return _media(kind, mime, data, block)
        case {"type": "resource", "resource": {"text": str(text)}}:
            return TextPart(text)
        case {"type": "resource", "resource": {"blob": str(data), **more}}:
            mime = str(more.get("mimeType") or "application/octet-stream")
            return _media("image" if mime.startswith("image/") else "file", mime, data, block)
    return TextPart(to_json(block).decode())


def _media(
    kind: Literal["image", "audio", "file"], mime: str, data: str, block: Mapping[str, Any]
) -> TextPart | MediaPart:
    try:
        base64.b64decode(data, validate=True)
    except binascii.Error:
        return TextPart(to_json(block).decode())
    return MediaPart(kind, mime, data)
