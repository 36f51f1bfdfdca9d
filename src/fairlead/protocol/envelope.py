"""Plain-data records of messages: direction, transport, session, content.

They are not used on the hot path. Rules, journals and tapes create a `MessageEnvelope` from an
exchange when they need it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from msgspec import Struct

from ..wire import Message

__all__ = [
    "Direction",
    "McpMessage",
    "MessageEnvelope",
    "SessionContext",
    "SessionState",
    "TransportContext",
]

McpMessage: TypeAlias = Message


class Direction(StrEnum):
    """Direction of a message: determined by the side it arrived on,
    never guessed from its method.
    """

    CLIENT_TO_SERVER = "client_to_server"
    SERVER_TO_CLIENT = "server_to_client"
    INTERNAL = "internal"  # created by a component between client and server and not forwarded

    def reverse(self) -> "Direction":
        """Return the direction of a response to this message."""
        match self:
            case Direction.CLIENT_TO_SERVER:
                return Direction.SERVER_TO_CLIENT
            case Direction.SERVER_TO_CLIENT:
                return Direction.CLIENT_TO_SERVER
        return self


class SessionState(StrEnum):
    """Phase of a conversation."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    ACTIVE = "active"
    CLOSING = "closing"
    CLOSED = "closed"


class TransportContext(Struct, frozen=True, kw_only=True):
    """Facts about a message that come from its transport and not from the message itself."""

    transport_type: str  # "stdio", "process", "unix", "tcp", "memory", "http", ...
    connected: bool = True
    headers: Mapping[str, str] | None = None
    cookies: Mapping[str, str] | None = None
    method: str | None = None
    path: str | None = None
    status: int | None = None
    event_id: str | None = None
    event_type: str | None = None
    last_event_id: str | None = None
    retry_after: float | None = None  # seconds, from `retry:` or `Retry-After`
    process_id: int | None = None
    close_code: int | None = None
    peer_address: str | None = None
    connection_id: str | None = None


class SessionContext(Struct, frozen=True, kw_only=True):
    """Public snapshot of a conversation: plain data that a store can keep."""

    state: SessionState
    session_id: str | None = None
    protocol_version: str | None = None
    client_info: Mapping[str, Any] | None = None
    server_info: Mapping[str, Any] | None = None
    client_capabilities: Mapping[str, Any] | None = None
    server_capabilities: Mapping[str, Any] | None = None
    instructions: str | None = None
    correlation_id: str | None = None


class MessageEnvelope(Struct, frozen=True, kw_only=True):
    """A message with all the facts known about it."""

    message: Message
    direction: Direction
    transport: TransportContext
    session: SessionContext
    received_at: float  # seconds since the epoch
    elapsed: float | None = None  # seconds between the request and this message; for responses only
