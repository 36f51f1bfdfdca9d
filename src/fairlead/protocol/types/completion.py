"""Completion: suggestions while a user fills in a prompt or a URI template."""

from typing import TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

__all__ = [
    "CompleteParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "PromptReference",
    "Reference",
    "ResourceReference",
]


class PromptReference(
    Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="ref/prompt"
):
    """Names the prompt whose argument is being filled in."""

    name: str
    title: str | UnsetType = UNSET


class ResourceReference(
    Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="ref/resource"
):
    """Names the URI template whose blank is being filled in."""

    uri: str


Reference: TypeAlias = PromptReference | ResourceReference


class CompletionArgument(Struct, frozen=True, kw_only=True, rename="camel"):
    """The argument at the cursor, and what has been typed so far."""

    name: str
    value: str


class CompletionContext(Struct, frozen=True, kw_only=True, rename="camel"):
    """The arguments that are already filled in (from 2025-06-18)."""

    arguments: dict[str, str] | UnsetType = UNSET


class CompleteParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Asks for suggestions for one argument."""

    ref: Reference
    argument: CompletionArgument
    context: CompletionContext | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class Completion(Struct, frozen=True, kw_only=True, rename="camel"):
    """Suggestions, the best first: at most 100 of `total`."""

    values: list[str]
    total: int | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET


class CompleteResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a server suggests."""

    completion: Completion
    result_type: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
