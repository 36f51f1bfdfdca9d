"""Prompts: message templates that a server provides and a user selects."""

from msgspec import UNSET, Raw, Struct, UnsetType, field

from .base import Icon

__all__ = ["Prompt", "PromptArgument"]


class PromptArgument(Struct, frozen=True, kw_only=True, rename="camel"):
    """Argument of a prompt."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET


class Prompt(Struct, frozen=True, kw_only=True, rename="camel"):
    """Prompt that a server offers."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    arguments: list[PromptArgument] | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
