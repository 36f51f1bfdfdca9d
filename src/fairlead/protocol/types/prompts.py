"""Prompts: messages that a server prepares and a user picks."""

from msgspec import UNSET, Raw, Struct, UnsetType, field

from .base import Icon

__all__ = ["Prompt", "PromptArgument"]


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
