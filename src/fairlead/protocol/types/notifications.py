"""What peers tell each other unasked, where no feature of its own defines it."""

from typing import TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

from ...wire.messages import RequestId

__all__ = [
    "CancelledParams",
    "ElicitationCompleteParams",
    "NotificationParams",
    "ProgressParams",
    "ProgressToken",
    "ResourceUpdatedParams",
]

ProgressToken: TypeAlias = int | str


class NotificationParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """The params of a notification that has none of its own: initialized, every `list_changed`."""

    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class CancelledParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Nobody waits for that request any more. Only 2025-11-25 lets the id be absent, for tasks."""

    request_id: RequestId | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ProgressParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a request has come; `progress` only grows."""

    progress_token: ProgressToken
    progress: int | float
    total: int | float | UnsetType = UNSET
    message: str | UnsetType = UNSET  # from 2025-03-26
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ResourceUpdatedParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """A resource has changed: the one that was subscribed to, or a part of it."""

    uri: str
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ElicitationCompleteParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """The page of a URL elicitation has done its work (2025-11-25)."""

    elicitation_id: str
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
