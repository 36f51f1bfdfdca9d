"""Sampling: a server asks the client's model."""

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from .base import Role, TaskMetadata, decode
from .content import ContentBlock, UnknownContent, decode_content

__all__ = [
    "CreateMessageParams",
    "CreateMessageResult",
    "IncludeContext",
    "ModelHint",
    "ModelPreferences",
    "SamplingMessage",
    "ToolChoice",
    "decode_blocks",
]

IncludeContext: TypeAlias = Literal["none", "thisServer", "allServers"]


class ModelHint(Struct, frozen=True, kw_only=True, rename="camel"):
    """Part of the name of a model that would do."""

    name: str | UnsetType = UNSET


class ModelPreferences(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a server would like the model to be: priorities from 0 to 1, the best hint first."""

    hints: list[ModelHint] | UnsetType = UNSET
    cost_priority: int | float | UnsetType = UNSET
    speed_priority: int | float | UnsetType = UNSET
    intelligence_priority: int | float | UnsetType = UNSET


class ToolChoice(Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the model may, must or must not call a tool (from 2025-11-25)."""

    mode: Literal["auto", "required", "none"] | UnsetType = UNSET


class SamplingMessage(Struct, frozen=True, kw_only=True, rename="camel"):
    """One turn of the conversation that a model is shown."""

    role: Role
    content: Raw  # one block; from 2025-11-25 also an array: see `decode_blocks`
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class CreateMessageParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Asks for the message after `messages` (each a `SamplingMessage`; tools each a `Tool`)."""

    messages: list[Raw]
    max_tokens: int
    model_preferences: ModelPreferences | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    include_context: IncludeContext | UnsetType = UNSET
    temperature: int | float | UnsetType = UNSET
    stop_sequences: list[str] | UnsetType = UNSET
    metadata: Raw | UnsetType = UNSET  # for the model's provider
    tools: list[Raw] | UnsetType = UNSET
    tool_choice: ToolChoice | UnsetType = UNSET
    task: TaskMetadata | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class CreateMessageResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the model said, which model it was and why it stopped."""

    role: Role
    content: Raw  # as in SamplingMessage
    model: str
    stop_reason: str | UnsetType = (
        UNSET  # "endTurn", "stopSequence", "maxTokens", "toolUse" or other
    )
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


def decode_blocks(content: Raw) -> list[ContentBlock | UnknownContent]:
    """The blocks of a sampling message, whether it holds one or an array of them."""
    try:
        items = decode(content, list[Raw])
    except msgspec.ValidationError:
        items = [content]
    return [decode_content(item) for item in items]
