"""The `Channel` protocol: a bidirectional stream of messages with one peer."""

from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Raw, Struct

from ..errors import FairleadError, RemoteProtocolError
from ..protocol.envelope import TransportContext
from ..wire import Batch, Message, Request, RequestId

# Not imported at run time, because a server over stdio does not need this module.
if TYPE_CHECKING:
    from ..protocol.headers import ParamHeader
    from .login_waits import LoginWaits

__all__ = [
    "BufferedDelivery",
    "Channel",
    "Deliver",
    "Incoming",
    "RequestLost",
    "SharedStream",
    "complete_channel",
]


class RequestLost(Struct, frozen=True):
    """A request sent by this side that will get no response, although the channel stays open.

    Over HTTP, a POST can fail while others succeed.
    """

    request_id: RequestId
    error: FairleadError


# The items that a channel delivers: messages,
# the error for each frame that is not a message, and the failures of single requests.
Incoming: TypeAlias = Message | Batch | RemoteProtocolError | RequestLost
Deliver: TypeAlias = Callable[[Incoming], None]


class Channel(Protocol):
    """A bidirectional stream of messages with one peer.

    All methods may be called by any task, in any order; only `run` belongs to one task. Derive a
    channel from `SharedStream`, which has defaults for all optional members. `complete_channel`
    adds them to a channel of another class.
    """

    context: TransportContext

    # Members that only HTTP implements

    # Called after a new session was opened because the server no longer recognizes the old one.
    on_renewed: Callable[[], None] | None
    # Returns the arguments of a tool that are sent in headers as well as in the body.
    param_headers_of: "Callable[[str], tuple[ParamHeader, ...]] | None"

    @property
    def logins(self) -> "LoginWaits | None":
        """Periods in which requests wait for a user to log in; deadlines exclude them."""

    @property
    def id(self) -> str | None:
        """Session id, which only server-side channels have."""

    @property
    def has_stream(self) -> bool:
        """Return True if the peer can now receive messages that do not belong to its requests."""
        ...

    @property
    def idle_since(self) -> float | None:
        """The time of `time.monotonic` at which the peer's last request or stream ended; None while
        there is one.
        """

    @property
    def carries_headers(self) -> bool:
        """Return True if outbound requests have headers, so that `add_headers` has an effect."""
        ...

    @property
    def correlates_calls(self) -> bool:
        """Return True if each outbound request has its own stream: see `related_request_id`."""
        ...

    @property
    def executed_initialize(self) -> bool:
        """Return True if the server has answered `initialize` with a 2xx status."""
        ...

    @property
    def related_request_id(self) -> RequestId | None:
        """The outbound request whose stream carried the item that is being delivered."""

    def add_headers(self, request_id: RequestId, headers: Mapping[str, str]) -> None:
        """Add headers to an outbound request.

        Call it in the same event loop iteration in which the request was sent.
        """

    def waits_for_events(self, request_id: RequestId) -> bool:
        """Return True if an outbound request was accepted and its response is an event stream."""
        ...

    # Members of all channels

    async def run(self, deliver: Deliver) -> None:
        """Deliver messages in order until the peer ends its side of the stream. Called once.

        `deliver` returns at once and never raises, so a channel needs no receive queue.

        Raises:
            ChannelClosed: The channel broke before the peer ended it.
        """

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        """Queue a message for writing. Never blocks: see `congested`.

        This is not a coroutine, because one coroutine per message would cost as much as encoding
        it.

        `reply_to` is the request of the peer that the message belongs to, for channels with several
        streams.

        Raises:
            ChannelClosed: The message certainly cannot be delivered.
        """

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        """Send a successful response, the most frequent message, without building a `Success`."""

    def send_request(self, number: int, method: str, params: Raw) -> None:
        """Send a request whose params are forwarded as received."""

    def join_writes(self) -> None:
        """Announce that several messages follow, so that the channel may write them together."""

    @property
    def congested(self) -> bool:
        """Return True if senders should `await drain()`, because the queue is long."""
        ...

    async def drain(self) -> None:
        """Wait until the queue is short again.

        Raises:
            ChannelClosed: The channel was closed before that.
        """

    def finish(self, request_id: RequestId) -> None:
        """End the HTTP response to a request that the peer has cancelled."""

    def detach(self, request_id: RequestId) -> None:
        """Close the stream of a request early, if the client can fetch the response later."""

    async def close(self) -> None:
        """Close the channel gracefully within a bounded time. Safe to call more than once."""


class SharedStream:
    """Base class of channels on which all requests share one stream.

    The members of `Channel` that deal with the stream of one request do nothing by default.
    """

    logins: "LoginWaits | None" = None
    id: str | None = None
    has_stream: bool = True
    idle_since: float | None = None
    carries_headers: bool = False
    correlates_calls: bool = False
    executed_initialize: bool = False
    related_request_id: RequestId | None = None
    on_renewed: Callable[[], None] | None = None
    param_headers_of: "Callable[[str], tuple[ParamHeader, ...]] | None" = None

    def send_request(self: Channel, number: int, method: str, params: Raw) -> None:
        """Send the request like any other message."""
        self.send(Request(number, method, params))

    def add_headers(self, request_id: RequestId, headers: Mapping[str, str]) -> None:
        """Ignore the headers, because requests on this channel have none."""

    def waits_for_events(self, request_id: RequestId) -> bool:
        """Return False, because each response is a single message."""
        return False

    def join_writes(self) -> None:
        """Do nothing, because each message is written separately."""

    def finish(self, request_id: RequestId) -> None:
        """Do nothing, because all requests share the stream."""

    def detach(self, request_id: RequestId) -> None:
        """Do nothing, because the peer could not fetch the response on another stream."""


class BufferedDelivery:
    """Base class of receivers, which keeps items that are received before `begin`."""

    def __init__(self) -> None:
        self._deliver: Deliver | None = None
        self._early: list[Incoming] = []

    def begin(self, deliver: Deliver) -> None:
        """Deliver the items received so far, and deliver later items immediately."""
        self._deliver = deliver
        early, self._early = self._early, []
        for item in early:
            deliver(item)

    def hand_over(self, item: Incoming) -> None:
        """Deliver an item, or keep it until `begin` is called."""
        if self._deliver is None:
            self._early.append(item)
        else:
            self._deliver(item)


def complete_channel(channel: Channel) -> Channel:
    """Add the missing defaults of `SharedStream` to a channel, and return it.

    Raises:
        TypeError: The class has `__slots__`, so attributes cannot be added.
    """
    if not isinstance(channel, SharedStream):
        for name, default in vars(SharedStream).items():
            if not name.startswith("_") and not hasattr(channel, name):
                try:
                    bound = isinstance(default, FunctionType)
                    # Bind methods to the channel: functions in an instance dictionary stay unbound.
                    setattr(channel, name, MethodType(default, channel) if bound else default)
                except AttributeError as exc:
                    kind = type(channel).__name__
                    raise TypeError(f"{kind} has no `{name}`: derive it from SharedStream") from exc
    return channel
