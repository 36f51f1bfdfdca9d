"""Exchange: a request or notification with its context, until it is completed."""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import Raw, Struct, UnsetType, field
from msgspec.structs import replace

from ..protocol.caller import Caller, ParamsHead, target_of
from ..protocol.envelope import Direction, MessageEnvelope, SessionContext, TransportContext
from ..wire import Notification, Request, RequestId

if TYPE_CHECKING:
    from ..protocol.targets.targets import Target

__all__ = ["Answer", "Delivery", "Exchange", "Handler", "ReplyPath", "ReplyPathBase"]

Answer: TypeAlias = bytes | Raw | None  # bytes of a result; None for a notification


class ReplyPath(Protocol):
    """Path back to the sender of an exchange, for messages before the result.

    `ReplyPathBase` has defaults for operations that not every transport supports.
    """

    @property
    def is_connection(self) -> bool:
        """Return True for a connection with several exchanges, False for one HTTP request."""
        ...

    @property
    def carrier(self) -> object | None:
        """Return the object of a relay that forwards messages on this connection, if any."""

    @property
    def session(self) -> SessionContext: ...

    @property
    def log_level(self) -> str | None:
        """Return the log level that the session set (handshake era)."""

    @log_level.setter
    def log_level(self, level: str | None) -> None: ...

    async def notify_caller(self, exchange: "Exchange", notification: Notification) -> None:
        """Send a notification that belongs to this exchange; waits while the peer reads slowly.

        Raises:
            ChannelClosed: The caller has disconnected.
        """

    def detach(self, exchange: "Exchange") -> None:
        """Close the stream on which the caller waits, if the caller can resume it."""

    def add_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Add members to the response to a request, beside its result or error."""

    async def close(self) -> None:
        """Close the connection, if this path is one. Safe to call more than once."""

    async def request_caller(
        self, exchange: "Exchange", method: str, params: dict[str, Any] | Raw | None
    ) -> Raw:
        """Send a request to the caller, on the stream of this exchange.

        Raises:
            LocalProtocolError: This caller cannot receive the request.
            RpcError: The caller returned an error.
            ChannelClosed: The caller has disconnected.
        """
        ...


class ReplyPathBase:
    """Defaults for the `ReplyPath` of a single exchange; all of them do nothing."""

    __slots__ = ()

    is_connection: bool = False
    carrier: object | None = None

    def detach(self, exchange: "Exchange") -> None:
        """Keep the stream, because the caller could not resume it."""

    def add_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Drop the members, because the response consists of the result only."""

    async def close(self) -> None:
        """Do nothing, because the path ends with the response."""


class Delivery(Struct):
    """Outcome of a notification, which all copies of its exchange share."""

    dropped: bool = False


class Exchange(Struct):
    """Message for a handler, with its sender and the transport it came by."""

    message: Request | Notification
    caller: Caller
    head: ParamsHead
    direction: Direction
    transport: TransportContext
    edge: ReplyPath
    started: float = field(default_factory=time.time)
    # id of the outbound request whose stream carried the message, if any
    related: RequestId | None = None
    alias: str | None = None  # name of the target as the upstream server knows it
    did: list[str] | None = None  # actions of interceptors, for tapes and journals
    server: str | None = None  # name of the server at a gateway's endpoint for one (`/mcp/NAME`)
    displayed: str | None = None  # the client's name of the target, if an interceptor replaced it
    # For subscriptions: returns True if the client may be notified about a URI.
    permits: Callable[[str], bool] | None = None
    # Returns every name of the target, if one endpoint serves several servers.
    resolver: "Callable[[Exchange], tuple[Target, ...]] | None" = None
    # outcome of a notification, if an interceptor called `watch_delivery`
    delivery: Delivery | None = None

    @property
    def method(self) -> str:
        return self.message.method

    @property
    def request_id(self) -> RequestId:
        """Return the id of the request. Must not be called for a notification, which has none."""
        return self.message.id  # type: ignore[union-attr]  # a call for every message adds up

    def note(self, what: str) -> None:
        """Record an action of an interceptor on this exchange."""
        if self.did is None:
            self.did = []
        self.did.append(what)

    def drop(self, what: str) -> None:
        """Record that an interceptor does not forward this notification, and why."""
        self.note(what)
        if self.delivery is not None:
            self.delivery.dropped = True

    def watch_delivery(self) -> Delivery:
        """Return the outcome of this notification; later copies of the exchange share it."""
        if self.delivery is None:
            self.delivery = Delivery()
        return self.delivery

    @property
    def target(self) -> str | None:
        """Return the tool, prompt or resource that the message names, if any."""
        return target_of(self.message.method, self.head)

    @property
    def targets(self) -> "tuple[Target, ...]":
        """Return all targets, with every name and form that policies must compare."""
        if self.resolver is not None:
            found = self.resolver(self)
        else:
            from ..protocol.targets.targets import targets_of

            found = targets_of(self.message.method, self.head, self.message.params)
        if self.displayed is None or not found:
            return found
        return replace(found[0], displayed=self.displayed), *found[1:]

    @property
    def progress_token(self) -> int | str | None:
        """Return the token for progress notifications that the caller wants."""
        meta = self.head.meta
        if isinstance(meta, UnsetType) or isinstance(meta.progress_token, UnsetType):
            return None
        return meta.progress_token

    def envelope(self) -> MessageEnvelope:
        """Build a plain record of this message."""
        return MessageEnvelope(
            message=self.message,
            direction=self.direction,
            transport=self.transport,
            session=self.edge.session,
            received_at=self.started,
        )


Handler: TypeAlias = Callable[[Exchange], Awaitable[Answer]]
