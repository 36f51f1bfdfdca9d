"""One connection: a channel, the rules of its conversation, and the requests in flight on it.

The owner task runs the channel and, in its `finally`, settles and cleans up everything; so any task
may open, share and close a connection, in any order. Messages are handled by the parts:
`inbound_dispatch` receives them, `outbound_requests` has the requests that we send,
`inbound_requests` those of the peer, `taskless_requests` those of them that need no task. The parts
share one `ConnectionState`; two of them are attributes, for code that forwards messages.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine, Mapping
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from ..errors import ChannelClosed
from ..interceptor import Exchange, Handler, OnMalformed, ReplyPathBase
from ..limits import IN_FLIGHT
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.envelope import SessionContext
from ..transport.channel import Channel, complete_channel
from ..wire import Notification, Params, RequestId, Success
from .connection_state import ConnectionState
from .inbound_dispatch import InboundDispatcher
from .inbound_in_flight import InFlight
from .inbound_requests import InboundRequests, InlineHandler, OnCancelled
from .outbound_requests import OutboundRequests
from .pending_requests import OnProgress, OnProgressNotification
from .taskless_requests import Delegate

__all__ = ["Peer"]

MAX_IN_FLIGHT = IN_FLIGHT.value
EOF_GRACE = 1.5  # seconds without any answer, after which a peer that ended its side hears no more
CANCEL_GRACE = 1.0  # seconds that cancelled handlers may take to clean up

log = logging.getLogger("fairlead.peer")


class Peer(ReplyPathBase):
    """The other end of a connection: ask it, tell it, answer it."""

    is_connection = True

    def __init__(
        self,
        channel: Channel,
        conversation: Conversation,
        *,
        handler: Handler | None = None,
        inline: InlineHandler | None = None,
        inline_methods: Container[str] = (),
        on_notification: Callable[[Notification], None] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        on_close: Callable[[ChannelClosed], None] | None = None,
        on_eof: Callable[["Peer"], object] | None = None,
        on_cancelled: OnCancelled | None = None,
        max_in_flight: int = MAX_IN_FLIGHT,
        input_timeout: float = 600.0,
        take: Delegate | None = None,
        make_outbound: Callable[[ConnectionState, float], OutboundRequests] = OutboundRequests,
    ) -> None:
        """`inline` is asked first for `inline_methods`: what it answers needs no task. Nor does
        what `take` takes over.

        `on_eof` is told when the peer has ended its side, while work in progress may still finish.
        `on_cancelled` is asked to cancel a request that the peer does not wait for any more.
        `make_outbound` makes what sends our own requests.
        """
        channel = self.channel = complete_channel(channel)
        self.conversation = conversation
        self.carrier: object | None = None  # who passes messages of others on it, if anybody
        self._on_close = on_close
        self._on_eof = on_eof
        self._input_timeout = input_timeout
        self._closing: asyncio.Task[None] | None = None
        self._work = InFlight(max_in_flight)
        self._line = line = ConnectionState(channel, conversation, self._work)
        self.outbound = make_outbound(line, input_timeout)
        self._inbound_requests = InboundRequests(
            line,
            self,
            handler=handler,
            inline=inline,
            inline_methods=inline_methods,
            take=take,
            on_cancelled=on_cancelled,
            on_question=self.outbound.pause_deadlines
            if conversation.role is ConversationRole.CLIENT
            else None,
        )
        self._inbound_dispatcher = InboundDispatcher(
            line,
            self.outbound,
            self._inbound_requests,
            on_notification=on_notification,
            on_error=on_error,
            hang_up=self._give_up,
        )
        self.delegated = self._inbound_requests.delegated

    # Requests and notifications. Code that runs for every forwarded message or call of a client
    # uses `outbound` and `delegated` themselves: one Python call less.

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | Raw | None = None,
        *,
        timeout: float = 30.0,
        max_total: float = 0.0,
        on_progress: OnProgress | None = None,
        on_sent: Callable[[RequestId], None] | None = None,
        quiet: bool = False,
        reply_to: RequestId | None = None,
        reserved: RequestId | None = None,
    ) -> Coroutine[Any, Any, Raw]:
        """Send a request and wait for the bytes of its result.

        A `timeout` of 0 means no limit. With `max_total`, progress restarts the timeout until that
        many seconds have passed in all. `on_sent` gets the id of the request. A `quiet` request is
        not cancelled at the peer when its caller stops waiting. `reply_to` is the request of the
        peer that this one belongs to, `reserved` an id that was reserved before.

        Raises:
            RpcError: The peer answered with an error.
            RequestTimeout: No response came in time; the peer was told.
            ChannelClosed: The connection ended first.
            LocalProtocolError: The request is not allowed now.
        """
        return self.outbound.request(
            method,
            params,
            timeout=timeout,
            max_total=max_total,
            on_progress=on_progress,
            on_sent=on_sent,
            quiet=quiet,
            reply_to=reply_to,
            reserved=reserved,
        )

    def notify(
        self, method: str, params: Mapping[str, Any] | Raw | None = None, *, timeout: float = 30.0
    ) -> Coroutine[Any, Any, None]:
        """Send a notification; wait while the peer reads slowly.

        Raises:
            ChannelClosed: It certainly did not arrive.
            RequestTimeout: The peer reads nothing; it was not sent.
        """
        return self.outbound.notify(method, params, timeout=timeout)

    def forward(
        self,
        method: str,
        fill: Callable[[RequestId], Params],
        *,
        extra: dict[str, Raw] | None = None,
        timeout: float = 0.0,
        max_total: float = 0.0,
        overhear: OnProgressNotification | None = None,
        on_sent: Callable[[RequestId], None] | None = None,
        reply_to: RequestId | None = None,
    ) -> Coroutine[Any, Any, Raw]:
        """Forward a request of another connection and wait for its result.

        It differs from `request` in that `fill` makes the params for the id that the request gets,
        and `overhear` gets the notifications of progress as they came.

        Raises:
            RpcError, RequestTimeout, ChannelClosed, LocalProtocolError: As `request` does.
        """
        return self.outbound.forward(
            method,
            fill,
            extra=extra,
            timeout=timeout,
            max_total=max_total,
            overhear=overhear,
            on_sent=on_sent,
            reply_to=reply_to,
        )

    def add_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Send these members beside the result or the error of a request of the peer."""
        self._inbound_requests.responses.add_extra_members(request_id, members)

    # Life

    def start(self) -> None:
        """Begin to read. Once."""
        assert self._line.owner is None
        self._line.begin(self._line.loop.create_task(self._own()))

    @property
    def connected(self) -> bool:
        return self._line.open

    @property
    def end(self) -> ChannelClosed | None:
        """Why the connection is over, once it is."""
        return self._line.end

    async def wait_closed(self) -> ChannelClosed:
        """Wait until the connection is over and cleaned up."""
        assert self._line.owner is not None
        await asyncio.wait((self._line.owner,))
        assert self._line.end is not None
        return self._line.end

    async def close(self, reason: str = "", *, public: str = "") -> None:
        """End the connection in bounded time; `reason` is what those hear who wait for an answer.

        By any task, more than once, also by a handler of ours. `public` is as in `TransportError`.
        """
        self.conversation.closing()
        self._over(ChannelClosed(reason, public=public))
        owner, current = self._line.owner, asyncio.current_task()
        if owner is not None:
            self._inbound_requests.drop_all()
        await self.channel.close()
        if owner is not None and current is not owner and not self._work.has_task(current):
            await asyncio.wait((owner,))

    async def _own(self) -> None:
        end = ChannelClosed()
        try:
            await self.channel.run(self._inbound_dispatcher.deliver)
            if self._on_eof is not None:
                self._on_eof(self)
            if self.conversation.role is ConversationRole.SERVER and self._line.end is None:
                while await self._got_on(EOF_GRACE):
                    pass
        except ChannelClosed as exc:
            end = exc
        except Exception as exc:
            log.exception("the connection failed")
            self._inbound_dispatcher.report(exc)
            end = ChannelClosed(str(exc))
        finally:
            self._over(end)
            self._inbound_requests.drop_all()
            await self._finish_work(CANCEL_GRACE)
            self._work.running.clear()
            await self.channel.close()
            self.outbound.close()
            if self._on_close is not None and self._line.end is not None:
                try:
                    self._on_close(self._line.end)
                except Exception:
                    log.exception("on_close failed")

    async def _got_on(self, seconds: float) -> bool:
        """Give work in progress some time; whether there is more of it, and some of it got done.

        Whoever pipes many requests into a server wants all of their answers.
        """
        owed, before = self.conversation.unanswered_count, self._work.everything()
        await self._finish_work(seconds)
        left = self._work.everything()
        got_on = (
            self.conversation.unanswered_count < owed or not before <= left
        )  # answered, or read as well
        return bool(left) and got_on and self._line.end is None

    async def _finish_work(self, seconds: float) -> None:
        await self._work.finish(seconds)

    def _over(self, end: ChannelClosed) -> None:
        """It ends once; the first reason is the one that everybody hears."""
        if self._line.end is None:
            self._line.finish(end)
            self.outbound.fail_all(end)

    def _give_up(self, end: ChannelClosed) -> None:
        """End it without waiting for that."""
        self._over(end)
        self._closing = self._line.loop.create_task(self.channel.close())

    # What was heard, and how much can be said

    @property
    def unmatched_count(self) -> int:
        """Messages for which nobody waited."""
        return self._inbound_dispatcher.unmatched_count

    @property
    def malformed(self) -> int:
        """Frames that were no messages."""
        return self._inbound_dispatcher.malformed

    @property
    def on_malformed(self) -> OnMalformed | None:
        """Hears of frames that are no good; settable."""
        return self._inbound_dispatcher.on_malformed

    @on_malformed.setter
    def on_malformed(self, hears: OnMalformed | None) -> None:
        self._inbound_dispatcher.on_malformed = hears

    @property
    def on_extra_members(self) -> Callable[[RequestId, dict[str, Raw]], None] | None:
        """Hears of members that an answer has besides its result: of which request; settable."""
        return self.outbound.on_extra_members

    @on_extra_members.setter
    def on_extra_members(self, hears: Callable[[RequestId, dict[str, Raw]], None] | None) -> None:
        self.outbound.on_extra_members = hears

    @property
    def congested(self) -> bool:
        """Whether a request of ours would have to wait; also behind those that do so already."""
        return self.outbound.wanting > 0 or self.channel.congested

    @property
    def related_request_id(self) -> RequestId | None:
        """While something is delivered: the request of ours whose own stream brought it.

        Only channels over HTTP can tell; elsewhere all share one stream.
        """
        return self.channel.related_request_id

    def settle(self, request_id: RequestId, result: Raw) -> None:
        """Take something else for the answer to a request of ours."""
        self._inbound_dispatcher.apply_event(self.conversation.receive(Success(request_id, result)))

    # The interface `ReplyPath`

    @property
    def session(self) -> SessionContext:
        known, named = self.conversation.session, self.channel.id
        if known.session_id is not None or named is None:
            return known
        return replace(known, session_id=named)  # a session over HTTP has an id of its own

    @property
    def log_level(self) -> str | None:
        return self.conversation.log_level

    @log_level.setter
    def log_level(self, level: str | None) -> None:
        self.conversation.log_level = level

    async def notify_caller(self, exchange: Exchange, notification: Notification) -> None:
        channel, work = self.channel, self._work
        request_id = exchange.request_id
        if request_id not in work.running and request_id not in work.taken:
            return  # it has its outcome; nothing may follow that
        channel.send(notification, reply_to=request_id)
        if channel.congested:
            await channel.drain()

    def detach(self, exchange: Exchange) -> None:
        """Let go of the stream that waits for this exchange, if it has one of its own."""
        self.channel.detach(exchange.request_id)

    async def request_caller(
        self, exchange: Exchange, method: str, params: dict[str, Any] | Raw | None
    ) -> Raw:
        return await self.outbound.request(
            method, params, timeout=self._input_timeout, reply_to=exchange.request_id
        )
