"""Elicitation: a server asks the user."""

from typing import Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

from .base import TaskMetadata

__all__ = [
    "ElicitAction",
    "ElicitParams",
    "ElicitResult",
    "UrlElicitationRequiredData",
]

ElicitAction: TypeAlias = Literal["accept", "decline", "cancel"]


class ElicitParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """A question to the user: a form to fill in, or (from 2025-11-25) a page to visit.

    A form has `requested_schema` and need not name its mode. A page has `url`, and in 2025-11-25
    also the `elicitation_id` under which its end is announced.
    """

    message: str
    mode: Literal["form", "url"] | UnsetType = UNSET
    requested_schema: Raw | UnsetType = UNSET
    url: str | UnsetType = UNSET
    elicitation_id: str | UnsetType = UNSET
    task: TaskMetadata | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ElicitResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the user did, and the filled-in form if one was accepted."""

    action: ElicitAction
    content: Raw | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class UrlElicitationRequiredData(Struct, frozen=True, kw_only=True, rename="camel"):
    """Data of error -32042 (2025-11-25): the pages to visit before the request can succeed."""

    elicitations: list[ElicitParams]
