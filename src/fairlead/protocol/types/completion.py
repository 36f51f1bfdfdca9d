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


class PromptReference(Struct, frozen=True, kw_only=True, tag_field="type", tag="ref/prompt"):
    """Reference to the prompt whose argument is being completed."""

    name: str
    title: str | UnsetType = UNSET


class ResourceReference(Struct, frozen=True, kw_only=True, tag_field="type", tag="ref/resource"):
    """Reference to the URI template whose variable is being completed."""

    uri: str


Reference: TypeAlias = PromptReference | ResourceReference


class CompletionArgument(Struct, frozen=True, kw_only=True, rename="camel"):
    """The argument to complete, with the text typed so far."""

    name: str
    value: str


class CompletionContext(Struct, frozen=True, kw_only=True, rename="camel"):
    """Arguments whose values are already known (from 2025-06-18)."""

    arguments: dict[str, str] | UnsetType = UNSET


class CompleteParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Params of a request for completions of one argument."""

    ref: Reference
    argument: CompletionArgument
    context: CompletionContext | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class Completion(Struct, frozen=True, kw_only=True, rename="camel"):
    """Suggestions, best first: at most 100 of `total`."""

    values: list[str]
    total: int | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET


class CompleteResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """Result that contains a server's suggestions."""

    completion: Completion
    result_type: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
