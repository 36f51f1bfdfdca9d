"""An exchange: a request or notification with its context."""

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

Answer: TypeAlias = bytes | Raw | None  # the bytes of a result; None for a notification


class ReplyPath(Protocol):
    """Path back to an exchange's sender, for messages before the result.

    `ReplyPathBase` has defaults for operations that not every transport supports.
    """

    @property
    def is_connection(self) -> bool:
        """True for a connection with several exchanges, False for a single HTTP request."""
        ...

    @property
    def carrier(self) -> object | None:
        """The relay's object that forwards messages on this connection, if any."""

    @property
    def session(self) -> SessionContext: ...

    @property
    def log_level(self) -> str | None:
        """The log level that the session set (handshake era)."""

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
        """Add members other than result and error to the response to a request."""

    async def close(self) -> None:
        """Close the connection, if this path has one. May be called more than once."""

    async def request_caller(
        self,
        exchange: "Exchange",
        method: str,
        params: dict[str, Any] | Raw | None,
        *,
        timeout: float | None = None,
    ) -> Raw:
        """Send a request to the caller, on this exchange's stream.

        Without a `timeout` in seconds, that of the connection applies.

        Raises:
            LocalProtocolError: This caller cannot receive the request.
            RpcError: The caller returned an error.
            ChannelClosed: The caller has disconnected.
        """
        ...


class ReplyPathBase:
    """Defaults for the `ReplyPath` of a single exchange; none of them has an effect."""

    __slots__ = ()

    is_connection: bool = False
    carrier: object | None = None

    def detach(self, exchange: "Exchange") -> None:
        """Keep the stream open, because the caller could not resume it."""

    def add_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Ignore the members, because the response consists of the result only."""

    async def close(self) -> None:
        """Do nothing, because the path ends with the response."""


class Delivery(Struct):
    """Outcome of a notification, shared by all copies of its exchange."""

    dropped: bool = False


class Exchange(Struct):
    """A message for a handler, with its sender and transport."""

    message: Request | Notification
    caller: Caller
    head: ParamsHead
    direction: Direction
    transport: TransportContext
    edge: ReplyPath
    started: float = field(default_factory=time.time)
    # id of the outbound request on whose stream the message arrived, if any
    related: RequestId | None = None
    alias: str | None = None  # the upstream server's name for the target
    did: list[str] | None = None  # actions of interceptors, for tapes and journals
    server: str | None = None  # name of the server at the gateway endpoint `/mcp/NAME`
    displayed: str | None = None  # name that the client used, if an interceptor replaced it
    # For subscriptions: returns True if the client may be notified about a URI.
    permits: Callable[[str], bool] | None = None
    # Returns every name of the target, if an endpoint serves several servers.
    resolver: "Callable[[Exchange], tuple[Target, ...]] | None" = None
    # outcome of a notification, if an interceptor called `watch_delivery`
    delivery: Delivery | None = None

    @property
    def method(self) -> str:
        return self.message.method

    @property
    def request_id(self) -> RequestId:
        """The id of the request. Must not be used for a notification, which has none."""
        return self.message.id  # type: ignore[union-attr]  # a check costs time per message

    def note(self, what: str) -> None:
        """Record what an interceptor did with this exchange."""
        if self.did is None:
            self.did = []
        self.did.append(what)

    def drop(self, what: str) -> None:
        """Record that an interceptor does not forward this notification, and the reason."""
        self.note(what)
        if self.delivery is not None:
            self.delivery.dropped = True

    def watch_delivery(self) -> Delivery:
        """Return the outcome of this notification;
        later copies of the exchange share the object.
        """
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
        """The token with which the caller requests progress notifications."""
        meta = self.head.meta
        if isinstance(meta, UnsetType) or isinstance(meta.progress_token, UnsetType):
            return None
        return meta.progress_token

    def envelope(self) -> MessageEnvelope:
        """Build a plain-data record of this message."""
        return MessageEnvelope(
            message=self.message,
            direction=self.direction,
            transport=self.transport,
            session=self.edge.session,
            received_at=self.started,
        )


Handler: TypeAlias = Callable[[Exchange], Awaitable[Answer]]
