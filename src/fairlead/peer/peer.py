"""One connection: a channel, its conversation and the requests in flight.

The owner task runs the channel and, in its `finally`, settles all requests and cleans up. Any task
may therefore open, share and close a connection, in any order. Several modules handle the messages:
`inbound_dispatch` receives them, `outbound_requests` sends requests to the peer, `inbound_requests`
handles requests of the peer, with or without a task of their own. Their objects
share one `ConnectionState`; `outbound` and `delegated` are attributes of the peer, for code that
forwards messages.
"""

import asyncio
import logging
from collections.abc import Callable, Container
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from ..errors import ChannelClosed
from ..interceptor import Exchange, Handler, OnMalformed, ReplyPathBase
from ..limits import IN_FLIGHT
from ..protocol.caller import Principal
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.envelope import SessionContext
from ..transport.channel import Channel, complete_channel
from ..wire import Notification, RequestId, Success
from .connection_state import ConnectionState, InFlight
from .inbound_dispatch import InboundDispatcher
from .inbound_requests import Delegate, InboundRequests, InlineHandler, OnCancelled
from .outbound_requests import OutboundRequests

__all__ = ["Peer"]

MAX_IN_FLIGHT = IN_FLIGHT.value
# seconds without a response before a peer that closed its sending side is disconnected
EOF_GRACE = 1.5
CANCEL_GRACE = 1.0  # seconds that cancelled handlers may take to clean up

log = logging.getLogger("fairlead.peer")


class Peer(ReplyPathBase):
    """The peer of a connection: send it requests and notifications, and answer its requests."""

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
        """`inline` may answer requests with one of `inline_methods` without a task; `take` may take
        over any other request without a task.

        `on_eof` is called when the peer has ended its side, while requests in progress may still
        finish. `on_cancelled` is called to cancel a request that the peer has cancelled.
        `make_outbound` creates the object that sends requests.
        """
        channel = self.channel = complete_channel(channel)
        self.conversation = conversation
        # object of a relay that forwards messages on this connection, if any
        self.carrier: object | None = None
        self._on_close = on_close
        self._on_eof = on_eof
        self._input_timeout = input_timeout
        self._closing: asyncio.Task[None] | None = None
        self._work = InFlight(max_in_flight)
        self.state = line = ConnectionState(channel, conversation, self._work)
        self.outbound = make_outbound(line, input_timeout)
        self.request = self.outbound.request
        self.notify = self.outbound.notify
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

    @property
    def requests_in_progress(self) -> int:
        """The number of requests that are not answered yet, without those that only listen."""
        return max(self.conversation.unanswered_count - len(self._work.lasting), 0)

    def use_principal(self, principal: Principal) -> None:
        """Set the identity of the peer for the messages that follow.

        The identity stays the same, but its token may differ: in a session, each request is
        authorized by the token that came with it.
        """
        conversation = self.conversation
        conversation.principal = principal
        if conversation.peer is not None:
            conversation.peer = replace(conversation.peer, principal=principal)

    def add_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Add members other than result and error to the response to a request of the peer."""
        self._inbound_requests.responses.add_extra_members(request_id, members)

    # Start and end

    def start(self) -> None:
        """Start the owner task, which reads from the channel. Must be called only once."""
        assert self.state.owner is None
        self.state.begin(self.state.loop.create_task(self._own()))

    @property
    def connected(self) -> bool:
        return self.state.open

    @property
    def end(self) -> ChannelClosed | None:
        """Return the reason why the connection ended, or None while it is open."""
        return self.state.end

    async def wait_closed(self) -> ChannelClosed:
        """Wait until the connection has ended and is cleaned up, and return the reason."""
        assert self.state.owner is not None
        await asyncio.wait((self.state.owner,))
        assert self.state.end is not None
        return self.state.end

    async def finish_requests(self, seconds: float) -> None:
        """Wait up to `seconds` until the running requests of the peer are answered."""
        await self._finish_work(seconds)

    async def close(self, reason: str = "", *, public: str = "") -> None:
        """Close the connection in bounded time; pending requests fail with `reason`.

        May be called by any task and more than once, also by a request handler. `public` is as in
        `TransportError`.
        """
        self.conversation.closing()
        self._over(ChannelClosed(reason, public=public))
        owner, current = self.state.owner, asyncio.current_task()
        if owner is not None:
            self._inbound_requests.drop_all()
        await self.channel.close()
        # The owner waits for the tasks of requests, so such a task must not wait for the owner.
        if owner is not None and current is not owner and not self._work.has_task(current):
            await asyncio.wait((owner,))

    async def _own(self) -> None:
        end = ChannelClosed()
        logins = self.channel.logins
        unwatch = None if logins is None else logins.add(self.outbound.pause_for_login)
        try:
            await self.channel.run(self._inbound_dispatcher.deliver)
            if self._on_eof is not None:
                self._on_eof(self)
            # A client that has closed its sending side still reads the responses to its requests.
            if self.conversation.role is ConversationRole.SERVER and self.state.end is None:
                while await self._got_on(EOF_GRACE):
                    pass
        except ChannelClosed as exc:
            end = exc
        # The channel or a callback may be third-party code: a failure ends only this connection.
        except Exception as exc:
            log.exception("the connection failed")
            self._inbound_dispatcher.report(exc)
            end = ChannelClosed(str(exc))
        finally:
            if unwatch is not None:
                unwatch()
            self._over(end)
            self._inbound_requests.drop_all()
            await self._finish_work(CANCEL_GRACE)
            self._work.running.clear()
            await self.channel.close()
            self.outbound.close()
            if self._on_close is not None and self.state.end is not None:
                try:
                    self._on_close(self.state.end)
                except Exception:
                    log.exception("on_close failed")
            # Reference cycles would keep the memory of an ended connection until a full garbage
            # collection, which is rare.
            self._on_close = None
            self._inbound_requests.release()
            self._inbound_dispatcher.release()

    async def _got_on(self, seconds: float) -> bool:
        """Wait for requests in progress; return True if some have completed and others are left.

        A client that pipes many requests into a server expects all responses.
        """
        owed, before = self.conversation.unanswered_count, self._work.everything()
        await self._finish_work(seconds)
        left = self._work.everything()
        # An ended task counts as progress too, because new requests may keep the count high.
        got_on = self.conversation.unanswered_count < owed or not before <= left
        return bool(left) and got_on and self.state.end is None

    async def _finish_work(self, seconds: float) -> None:
        await self._work.finish(seconds)

    def _over(self, end: ChannelClosed) -> None:
        """Record the end of the connection. Only the first reason is reported."""
        if self.state.end is None:
            self.state.finish(end)
            self.outbound.fail_all(self.state.end or end)

    def _give_up(self, end: ChannelClosed) -> None:
        """End the connection without waiting for the channel to close."""
        self._over(end)
        self._closing = self.state.loop.create_task(self.channel.close())

    # Counters, hooks and back-pressure

    @property
    def unmatched_count(self) -> int:
        """Number of messages that match no request."""
        return self._inbound_dispatcher.unmatched_count

    @property
    def malformed(self) -> int:
        """Number of frames that are not messages."""
        return self._inbound_dispatcher.malformed

    @property
    def unreadable_output(self) -> tuple[str, ...]:
        """The first lines that a server wrote before its first message, redacted and escaped."""
        return tuple(self._inbound_dispatcher.unreadable_output)

    def output_within(self, seconds: float) -> tuple[str, ...]:
        """Return the last lines that a server wrote instead of messages in the last seconds."""
        return self.state.output_within(seconds)

    @property
    def on_malformed(self) -> OnMalformed | None:
        """Callback for frames that are invalid, are refused or match no request; settable."""
        return self._inbound_dispatcher.on_malformed

    @on_malformed.setter
    def on_malformed(self, hears: OnMalformed | None) -> None:
        self._inbound_dispatcher.on_malformed = hears

    @property
    def on_extra_members(self) -> Callable[[RequestId, dict[str, Raw]], None] | None:
        """Callback for the extra members of a response, by request id; settable."""
        return self.outbound.on_extra_members

    @on_extra_members.setter
    def on_extra_members(self, hears: Callable[[RequestId, dict[str, Raw]], None] | None) -> None:
        self.outbound.on_extra_members = hears

    @property
    def congested(self) -> bool:
        """Return True if an outbound request would have to wait for the channel."""
        return self.outbound.wanting > 0 or self.channel.congested

    @property
    def related_request_id(self) -> RequestId | None:
        """The id of the outbound request whose stream carried the message that is being delivered.

        Only HTTP channels have one stream per request; other channels return None.
        """
        return self.channel.related_request_id

    def settle(self, request_id: RequestId, result: Raw) -> None:
        """Settle an outbound request with a result that did not arrive as its response."""
        self._inbound_dispatcher.apply_event(self.conversation.receive(Success(request_id, result)))

    # The interface `ReplyPath`

    @property
    def session(self) -> SessionContext:
        known, named = self.conversation.session, self.channel.id
        if known.session_id is not None or named is None:
            return known
        return replace(known, session_id=named)  # an HTTP session has its own id

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
            # The request is complete, and no message may follow its response.
            return
        channel.send(notification, reply_to=request_id)
        if channel.congested:
            await channel.drain()

    def detach(self, exchange: Exchange) -> None:
        """Close the stream that waits for the response to this request, if it has one."""
        self.channel.detach(exchange.request_id)

    async def request_caller(
        self,
        exchange: Exchange,
        method: str,
        params: dict[str, Any] | Raw | None,
        *,
        timeout: float | None = None,
    ) -> Raw:
        limit = self._input_timeout if timeout is None else timeout
        return await self.outbound.request(
            method, params, timeout=limit, reply_to=exchange.request_id
        )
