"""What every channel offers: messages both ways with one peer, and nothing about what they mean."""

from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Raw, Struct

from ..errors import FairleadError, RemoteProtocolError
from ..protocol.envelope import TransportContext
from ..wire import Batch, Message, Request, RequestId

if TYPE_CHECKING:  # a server over stdio does not need it
    from ..protocol.headers import ParamHeader

__all__ = [
    "Channel",
    "Deliver",
    "HttpCapabilities",
    "Incoming",
    "RequestLost",
    "SharedStream",
    "complete_channel",
]


class RequestLost(Struct, frozen=True):
    """A request of ours will not be answered, though the channel goes on: each POST of HTTP can
    fail alone."""

    request_id: RequestId
    error: FairleadError


# What comes out of a channel: messages, for each frame that was none the reason why, and what
# became of requests that went a way of their own.
Incoming: TypeAlias = Message | Batch | RemoteProtocolError | RequestLost
Deliver: TypeAlias = Callable[[Incoming], None]


class HttpCapabilities(Protocol):
    """The part of a `Channel` that only HTTP has; `SharedStream` has defaults for all others."""

    # Called when the server has forgotten our session and another one has begun.
    on_renewed: Callable[[], None] | None

    @property
    def param_headers_of(self) -> "Callable[[str], tuple[ParamHeader, ...]] | None":
        """Returns the arguments of a tool that travel in headers as well; settable."""

    @param_headers_of.setter
    def param_headers_of(
        self, marks: "Callable[[str], tuple[ParamHeader, ...]] | None"
    ) -> None: ...

    @property
    def id(self) -> str | None:
        """The id of the client's session, on the server's side."""

    @property
    def has_stream(self) -> bool:
        """Whether the peer receives messages that belong to no request of its own now."""
        ...

    @property
    def carries_headers(self) -> bool:
        """Whether each request of ours has headers, to which `add_headers` adds."""
        ...

    @property
    def correlates_calls(self) -> bool:
        """Whether each request of ours has a stream of its own: see `related_request_id`."""
        ...

    @property
    def related_request_id(self) -> RequestId | None:
        """While something is delivered: the request of ours whose own stream brought it."""

    def add_headers(self, request_id: RequestId, headers: Mapping[str, str]) -> None:
        """Add headers to one request of ours; call it in the turn in which that was sent."""

    def waits_for_events(self, request_id: RequestId) -> bool:
        """Return True if a request of ours was accepted, and its response is an event stream."""
        ...


class Channel(HttpCapabilities, Protocol):
    """A two-way stream of messages with one peer.

    All methods may be called by any task, in any order; only `run` belongs to one. Derive a channel
    from `SharedStream`, which has defaults for everything that is optional. `complete_channel` adds
    them to a channel of another class.
    """

    context: TransportContext

    async def run(self, deliver: Deliver) -> None:
        """Hand over what arrives, in order, until the peer ends its side; called once.

        `deliver` returns at once and never raises, so a channel needs no inbox.

        Raises:
            ChannelClosed: if the channel broke, instead of being ended by the peer.
        """

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        """Queue a message for writing. Never waits: see `congested`.

        It is not a coroutine, because one for every message would cost as much as encoding it.

        `reply_to` is the peer's request that it belongs to, for channels with several streams.

        Raises:
            ChannelClosed: if it certainly cannot be delivered any more.
        """

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        """The same for the most frequent message of all, without building one."""

    def send_request(self, number: int, method: str, params: Raw) -> None:
        """The same for a request that is only passed on."""
        self.send(Request(number, method, params))

    def join_writes(self) -> None:
        """Several messages are about to be sent: a channel may send them as one."""

    @property
    def congested(self) -> bool:
        """Whether more is queued than the peer reads; polite senders then `await drain()`."""
        ...

    async def drain(self) -> None:
        """Wait until the queue is short again.

        Raises:
            ChannelClosed: if that will never happen.
        """

    def finish(self, request_id: RequestId) -> None:
        """A request ends without an answer (cancelled): a stream of its own can be closed."""

    def detach(self, request_id: RequestId) -> None:
        """A request's answer will be long: where the peer can come back for it, hang up."""

    async def close(self) -> None:
        """End the channel, politely first, within a bounded time; more than once is harmless."""


class SharedStream:
    """Base class of channels whose requests have no streams of their own: what a `Channel` may do
    for those has a default that does nothing."""

    id: str | None = None
    has_stream: bool = True
    carries_headers: bool = False
    correlates_calls: bool = False
    related_request_id: RequestId | None = None
    on_renewed: Callable[[], None] | None = None
    param_headers_of: "Callable[[str], tuple[ParamHeader, ...]] | None" = None

    def send_request(self: Channel, number: int, method: str, params: Raw) -> None:
        """Send the request like any other message."""
        self.send(Request(number, method, params))

    def add_headers(self, request_id: RequestId, headers: Mapping[str, str]) -> None:
        """Drop the headers: requests have none."""

    def waits_for_events(self, request_id: RequestId) -> bool:
        """Return False: responses come one by one."""
        return False

    def join_writes(self) -> None:
        """Send each message by itself."""

    def finish(self, request_id: RequestId) -> None:
        """Keep the stream, which belongs to all requests."""

    def detach(self, request_id: RequestId) -> None:
        """Keep the stream: the peer could not come back for an answer."""


def complete_channel(channel: Channel) -> Channel:
    """Give a channel of another class the defaults of `SharedStream` that it lacks; return it.

    Raises:
        TypeError: its class has `__slots__`, so that nothing can be added.
    """
    if not isinstance(channel, SharedStream):
        for name, default in vars(SharedStream).items():
            if not name.startswith("_") and not hasattr(channel, name):
                try:
                    bound = isinstance(default, FunctionType)
                    setattr(channel, name, MethodType(default, channel) if bound else default)
                except AttributeError as exc:
                    kind = type(channel).__name__
                    raise TypeError(f"{kind} has no `{name}`: derive it from SharedStream") from exc
    return channel
