"""Prompts: messages that a server prepares and a user picks."""

from msgspec import UNSET, Raw, Struct, UnsetType, field

from .base import Icon, Page, PaginatedParams, Role

__all__ = [
    "GetPromptParams",
    "GetPromptResult",
    "ListPromptsParams",
    "ListPromptsResult",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
]

ListPromptsParams = PaginatedParams


class PromptArgument(Struct, frozen=True, kw_only=True, rename="camel"):
    """A blank that a prompt wants filled in."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET


class Prompt(Struct, frozen=True, kw_only=True, rename="camel"):
    """A prompt that a server offers."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    arguments: list[PromptArgument] | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class PromptMessage(Struct, frozen=True, kw_only=True, rename="camel"):
    """One message of a prompt, with one block of content."""

    role: Role
    content: Raw


class ListPromptsResult(Page, frozen=True, kw_only=True, rename="camel"):
    """One page of a server's prompts, each a `Prompt`."""

    prompts: list[Raw]


class GetPromptParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Fills in a prompt, or does it again with the answers the server asked for."""

    name: str
    arguments: dict[str, str] | UnsetType = UNSET
    input_responses: dict[str, Raw] | UnsetType = UNSET
    request_state: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class GetPromptResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """A prompt, filled in: its messages, each a `PromptMessage`."""

    messages: list[Raw]
    description: str | UnsetType = UNSET
    result_type: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
