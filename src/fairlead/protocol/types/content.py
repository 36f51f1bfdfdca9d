"""The blocks that messages and tool results are made of.

Lists of blocks are carried as `list[Raw]` and read one at a time with `decode_content`, so that a
kind of block from a later revision passes through instead of spoiling its neighbours.
"""

from typing import Any, TypeAlias

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


class TextContent(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="text"):
    """Text."""

    text: str
    annotations: Annotations | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ImageContent(
    Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="image"
):
    """A picture; `data` is base64."""

    data: str
    mime_type: str
    annotations: Annotations | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class AudioContent(
    Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="audio"
):
    """Sound (from 2025-03-26); `data` is base64."""

    data: str
    mime_type: str
    annotations: Annotations | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ResourceLink(
    Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="resource_link"
):
    """Points to a resource that can be read later (from 2025-06-18); it need not be in any list."""

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
    """What a resource holds: `text`, or `blob` in base64, never both."""

    uri: str
    mime_type: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    blob: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class EmbeddedResource(
    Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="resource"
):
    """A resource with its contents, inline."""

    resource: ResourceContents
    annotations: Annotations | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ToolUseContent(
    Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="tool_use"
):
    """A model's wish to call a tool, in sampling (from 2025-11-25)."""

    id: str
    name: str
    input: Raw
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ToolResultContent(
    Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="tool_result"
):
    """What came of a tool that a model wished to call, in sampling (from 2025-11-25)."""

    tool_use_id: str
    content: list[Raw]
    structured_content: Raw | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class UnknownContent(Struct, frozen=True, kw_only=True):
    """A block we cannot read, and why. To pass it on, send `raw`."""

    raw: Raw
    type: str | None
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
    """Read one block; of an unknown kind, or broken, it comes back as it is."""
    try:
        block: ContentBlock = decode(raw, _CONTENT_BLOCK)
    except msgspec.DecodeError as exc:
        return UnknownContent(raw=raw, type=read_json(raw, _Typed, _Typed()).type, reason=str(exc))
    return block


class _Typed(Struct):
    type: str | None = None


_CONTENT_BLOCK: Any = ContentBlock  # a union is no `type[T]` to a type checker
