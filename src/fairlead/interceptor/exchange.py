"""One request or notification under way to its outcome."""

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

__all__ = ["Answer", "Exchange", "Handler", "ReplyPath", "ReplyPathBase"]

Answer: TypeAlias = bytes | Raw | None  # the result's bytes; None answers a notification


class ReplyPath(Protocol):
    """Where an exchange came in: the way back to whoever asked, while the answer is being made.

    `ReplyPathBase` has defaults for what not every transport can do.
    """

    @property
    def is_connection(self) -> bool:
        """Whether it is a connection with other exchanges, too, rather than one HTTP request."""
        ...

    @property
    def carrier(self) -> object | None:
        """The relay's connection that forwards messages of clients here, if one does."""

    @property
    def session(self) -> SessionContext: ...

    @property
    def log_level(self) -> str | None:
        """Handshake era: the level the session asked for; settable."""

    @log_level.setter
    def log_level(self, level: str | None) -> None: ...

    async def notify_caller(self, exchange: "Exchange", notification: Notification) -> None:
        """Send a notification that belongs to this exchange; waits while the peer reads slowly.

        Raises:
            ChannelClosed: if nobody is there any more.
        """

    def detach(self, exchange: "Exchange") -> None:
        """Close the stream that waits for this exchange, where the caller can come back for it."""

    def add_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Send these members beside the result or the error of a request."""

    async def close(self) -> None:
        """Close the connection, where it is one; more than once is harmless."""

    async def request_caller(
        self, exchange: "Exchange", method: str, params: dict[str, Any] | Raw | None
    ) -> Raw:
        """Ask the caller's side something, on this exchange's own stream.

        Raises:
            LocalProtocolError: if this caller cannot be asked.
            RpcError: if the caller's side refuses.
            ChannelClosed: if nobody is there any more.
        """
        ...


class ReplyPathBase:
    """Defaults for a `ReplyPath` of a single exchange: there is nothing to do."""

    __slots__ = ()

    is_connection: bool = False
    carrier: object | None = None

    def detach(self, exchange: "Exchange") -> None:
        """Keep the stream: the caller could not come back for an answer."""

    def add_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Drop the members: the answer is a result and nothing else."""

    async def close(self) -> None:
        """Leave the request as it is: its answer ends it."""


class Exchange(Struct):
    """A message on its way to a handler, with everything known about who sent it and how."""

    message: Request | Notification
    caller: Caller
    head: ParamsHead
    direction: Direction
    transport: TransportContext
    edge: ReplyPath
    started: float = field(default_factory=time.time)
    related: RequestId | None = None  # our own request, if it came on the stream of that one
    alias: str | None = None  # the name of its target, as the server behind us knows it
    did: list[str] | None = None  # what interceptors did to it, for tapes and journals
    server: str | None = None  # whom it is for, where the endpoint belongs to one of several
    displayed: str | None = None  # the client's name for its target, where one of us replaced it
    permits: Callable[[str], bool] | None = None  # of a subscription: the URIs to tell it of
    # Finds every name of what is meant, where several servers are behind one endpoint.
    resolver: "Callable[[Exchange], tuple[Target, ...]] | None" = None

    @property
    def method(self) -> str:
        return self.message.method

    @property
    def request_id(self) -> RequestId:
        """The id of the request; a notification has none, and nobody may ask for it."""
        return self.message.id  # type: ignore[union-attr]  # a call for every message adds up

    def note(self, what: str) -> None:
        """Say what was done to it."""
        if self.did is None:
            self.did = []
        self.did.append(what)

    @property
    def target(self) -> str | None:
        """The tool, prompt or resource that is meant, when one is."""
        return target_of(self.message.method, self.head)

    @property
    def targets(self) -> "tuple[Target, ...]":
        """All that is meant, under every name and in every form that policies must compare."""
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
        """The token under which the caller wants to hear about progress."""
        meta = self.head.meta
        if isinstance(meta, UnsetType) or isinstance(meta.progress_token, UnsetType):
            return None
        return meta.progress_token

    def envelope(self) -> MessageEnvelope:
        """A plain record of this message; made only when somebody asks."""
        return MessageEnvelope(
            message=self.message,
            direction=self.direction,
            transport=self.transport,
            session=self.edge.session,
            received_at=self.started,
        )


Handler: TypeAlias = Callable[[Exchange], Awaitable[Answer]]
