"""Content blocks of messages and tool results.

Lists of blocks are kept as `list[Raw]` and decoded one at a time with `decode_content`, so that a
block whose type is unknown is preserved and does not affect other blocks.
"""

from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from ...wire.json import read_json
from .base import Annotations, Icon, decode

__all__ = [
    "AudioContent",
    "ContentBlock",
    "EmbeddedResource",
    "ImageContent",
    "ResourceContents",
    "ResourceLink",
    "TextContent",
    "ToolResultContent",
    "ToolUseContent",
    "UnknownContent",
    "decode_content",
]


class _Block(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type"):
    """Base class that sets the encoding options of all blocks."""


class TextContent(_Block, frozen=True, kw_only=True, tag="text"):
    """Text block."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    annotations: Annotations | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ImageContent(_Block, frozen=True, kw_only=True, tag="image"):
    """Image block; `data` is base64."""

    type: ClassVar[Literal["image"]] = "image"
    data: str
    mime_type: str
    annotations: Annotations | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class AudioContent(_Block, frozen=True, kw_only=True, tag="audio"):
    """Audio block (from 2025-03-26); `data` is base64."""

    type: ClassVar[Literal["audio"]] = "audio"
    data: str
    mime_type: str
    annotations: Annotations | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ResourceLink(_Block, frozen=True, kw_only=True, tag="resource_link"):
    """Link to a resource that can be read later (from 2025-06-18);
    the resource need not be listed.
    """

    type: ClassVar[Literal["resource_link"]] = "resource_link"
    uri: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ResourceContents(Struct, frozen=True, kw_only=True, rename="camel"):
    """Contents of a resource: `text`, or `blob` in base64, never both."""

    uri: str
    mime_type: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    blob: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class EmbeddedResource(_Block, frozen=True, kw_only=True, tag="resource"):
    """Resource with its contents inline."""

    type: ClassVar[Literal["resource"]] = "resource"
    resource: ResourceContents
    annotations: Annotations | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ToolUseContent(_Block, frozen=True, kw_only=True, tag="tool_use"):
    """Tool call that a model requests during sampling (from 2025-11-25)."""

    type: ClassVar[Literal["tool_use"]] = "tool_use"
    id: str
    name: str
    input: Raw
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ToolResultContent(_Block, frozen=True, kw_only=True, tag="tool_result"):
    """Result of a tool call that a model requested during sampling (from 2025-11-25)."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_use_id: str
    content: list[Raw]
    structured_content: Raw | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class UnknownContent(Struct, frozen=True, kw_only=True):
    """Block that cannot be decoded, with the reason. To forward it, send `raw`.

    Its `type` is always "unknown", because the block lacks the fields of the type that was sent.
    """

    type: ClassVar[Literal["unknown"]] = "unknown"
    raw: Raw
    sent_type: str | None  # the type that was sent, or None if it is missing or not a string
    reason: str


ContentBlock: TypeAlias = (
    TextContent
    | ImageContent
    | AudioContent
    | ResourceLink
    | EmbeddedResource
    | ToolUseContent
    | ToolResultContent
)


def decode_content(raw: Raw) -> ContentBlock | UnknownContent:
    """Decode one block; an unknown type or an invalid block is returned as `UnknownContent`."""
    try:
        block: ContentBlock = decode(raw, _CONTENT_BLOCK)
    except msgspec.DecodeError as exc:
        sent_type = read_json(raw, _Typed, _Typed()).type
        return UnknownContent(raw=raw, sent_type=sent_type, reason=str(exc))
    return block


class _Typed(Struct):
    type: str | None = None


_CONTENT_BLOCK: Any = ContentBlock  # type checkers do not accept a union as `type[T]`
