"""What every channel offers: messages both ways with one peer, and nothing about what they mean."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from msgspec import Raw, Struct

from ..errors import FairleadError, RemoteProtocolError
from ..protocol.envelope import TransportContext
from ..wire import Batch, Message, RequestId

__all__ = ["Channel", "Deliver", "Incoming", "RequestLost", "SharedStream"]


class RequestLost(Struct, frozen=True):
    """A request of ours will not be answered, though the channel goes on: each POST of HTTP can
    fail alone."""

    request_id: RequestId
    error: FairleadError


# What comes out of a channel: messages, for each frame that was none the reason why, and what
# became of requests that went a way of their own.
Incoming: TypeAlias = Message | Batch | RemoteProtocolError | RequestLost
Deliver: TypeAlias = Callable[[Incoming], None]


class Channel(Protocol):
    """A two-way stream of messages with one peer.

    All methods may be called by any task, in any order; only `run` belongs to one.
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

    def join_writes(self) -> None:
        """Several messages are about to be sent: a channel may send them as one."""

    @property
    def congested(self) -> bool:
        """Whether more is queued than the peer reads; polite senders then `await drain()`."""

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
    """Hooks of a `Channel` whose requests have no streams of their own: there is nothing to do."""

    def join_writes(self) -> None:
        """Send each message by itself."""

    def finish(self, request_id: RequestId) -> None:
        """Keep the stream, which belongs to all requests."""

    def detach(self, request_id: RequestId) -> None:
        """Keep the stream: the peer could not come back for an answer."""
