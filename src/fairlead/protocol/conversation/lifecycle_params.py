"""Params that a conversation reads itself: those of `initialize`, progress and cancellation."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from ...wire import Notification
from ..revisions import Revision

__all__ = [
    "Agreement",
    "cancel_reason_of",
    "cancelled_id_of",
    "decode_initialize",
    "progress_token_of",
]


class Agreement(Struct, frozen=True, kw_only=True):
    """Information about a server that the client received from `initialize` or
    `server/discover`.
    """

    revision: Revision
    capabilities: bytes = b"{}"
    server_info: bytes | None = None
    instructions: str | None = None
    offers_handshake: bool = False  # `server/discover` also named revisions with a handshake


class _InitializeParams(Struct):
    protocol_version: str = field(name="protocolVersion")
    capabilities: Raw = Raw(b"{}")
    client_info: Raw | UnsetType = field(default=UNSET, name="clientInfo")


class _Cancelled(Struct):
    request_id: int | str | None = field(default=None, name="requestId")
    reason: str | None = None


class _Progress(Struct):
    progress_token: int | str | None = field(default=None, name="progressToken")


decode_initialize = msgspec.json.Decoder(_InitializeParams).decode
_decode_cancelled = msgspec.json.Decoder(_Cancelled).decode
_decode_progress = msgspec.json.Decoder(_Progress).decode


def progress_token_of(message: Notification) -> Any:
    """Return the progress token of a `notifications/progress`; None if it has none."""
    return _read(message, _decode_progress, "progress_token")


def cancelled_id_of(message: Notification) -> Any:
    """Return the id that a `notifications/cancelled` names, or None."""
    return _read(message, _decode_cancelled, "request_id")


def cancel_reason_of(message: Notification) -> str:
    """Return the reason given in a `notifications/cancelled`; an empty string if it gives none."""
    return _read(message, _decode_cancelled, "reason") or ""


def _read(message: Notification, decode: Any, attribute: str) -> Any:
    """Return a member of a notification's params; None if the params are malformed."""
    if isinstance(message.params, UnsetType):
        return None
    # The specification requires receivers to ignore malformed notifications.
    try:
        return getattr(decode(message.params), attribute)
    except (msgspec.DecodeError, RecursionError):
        return None
