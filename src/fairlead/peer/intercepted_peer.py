"""A peer with interceptors, which see all messages in both directions.

A connection without interceptors uses a plain `Peer`, which contains none of this code.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Raw, Struct, UnsetType

from ..errors import FairleadError, RpcError
from ..interceptor import Answer, Exchange, Handler, Interceptor, ReplyPath, chain
from ..observe.log_filter import ABOUT
from ..protocol.caller import Caller, read_params_head
from ..protocol.conversation.conversation import Conversation
from ..protocol.conversation.conversation_events import ProgressReceived
from ..protocol.envelope import Direction
from ..protocol.outgoing_params import with_meta
from ..protocol.revisions import NEWEST
from ..transport import timeouts
from ..transport.channel import Channel
from ..wire import Notification, Request, RequestId
from .connection_state import ConnectionState
from .notification_pipeline import NotificationPipeline
from .outbound_requests import OnProgress, OutboundRequests, Pending
from .peer import Peer

__all__ = ["InterceptedNotifier", "InterceptedPeer"]

log = logging.getLogger("fairlead.peer")


class InterceptedPeer(Peer):
    """A peer whose interceptors see requests, responses, notifications, progress and cancellations.

    Inbound notifications pass the interceptors one at a time, and responses that arrived after a
    notification wait for it. The interceptors are already part of `handler`, because requests also
    arrive by other paths.
    """

    def __init__(
        self,
        channel: Channel,
        conversation: Conversation,
        interceptors: Sequence[Interceptor],
        *,
        on_notification: Callable[[Notification], None] | None = None,
        **options: Any,
    ) -> None:
        """Accept the options of `Peer`."""
        super().__init__(
            channel,
            conversation,
            on_notification=self._hear,
            on_cancelled=self._withdrawn,
            make_outbound=partial(_InterceptedRequests, self),
            **options,
        )
        self.interceptors = interceptors
        self.ours: Direction = self.state.direction.reverse()
        self._deliver_note = on_notification or (lambda _: None)
        self._inbound_notes = NotificationPipeline(interceptors, self.state.direction)
        self._outbound_notes = NotificationPipeline(interceptors, self.ours)

    async def notify_through(
        self, deliver: Callable[[Notification], Awaitable[None]], note: Notification
    ) -> None:
        """Send a notification through the interceptors, with `deliver` in place of the channel.

        Raises:
            FairleadError: `deliver` or an interceptor raised it, and it is not an `RpcError`.
        """
        await _say(self._exchange(note), self.interceptors, deliver)

    async def notify_caller(self, exchange: Exchange, notification: Notification) -> None:
        async def deliver(note: Notification) -> None:
            await Peer.notify_caller(self, exchange, note)

        told = self._exchange(notification, exchange.request_id)
        await _say(told, self.interceptors, deliver)

    def _exchange(
        self, message: Request | Notification, related: RequestId | None = None
    ) -> Exchange:
        """Return the exchange of an outbound message."""
        known, identity = self.conversation.peer, self.conversation.identity
        revision = NEWEST if known is None else known.revision
        return Exchange(
            message,
            Caller(
                revision,
                revision.stateless,
                self.conversation.principal,
                identity.capabilities,
                identity.info,
            ),
            read_params_head(message.params),
            self.ours,
            self.channel.context,
            self,
            related=related,
        )

    def _hear(self, note: Notification) -> None:
        self._inbound_notes.put(note, self, self._deliver_note, self.related_request_id)

    def receive_through(
        self,
        deliver: Callable[[Notification], object],
        note: Notification,
        related: RequestId | None = None,
    ) -> None:
        """Pass a notification that did not arrive as a separate message to the interceptors."""
        self._inbound_notes.put(note, self, deliver, related)

    def _withdrawn(self, note: Notification, cancel: Callable[[str], object]) -> None:
        self._inbound_notes.cancel(note, self, cancel, self.related_request_id)

    async def _finish_work(self, seconds: float) -> None:
        began = self.state.loop.time()
        try:
            async with timeouts.timeout(seconds):
                await self._inbound_notes.passed()
        except TimeoutError:
            log.warning("interceptors did not process the last notifications in time")
        await super()._finish_work(max(0.0, seconds - (self.state.loop.time() - began)))

    async def _own(self) -> None:
        try:
            await super()._own()
        finally:
            self._inbound_notes.close()
            self._outbound_notes.close()


class _InterceptedRequests(OutboundRequests):
    """Outbound requests and notifications that pass the interceptors.

    A request has its id and metadata before the interceptors see it. Metadata that they remove is
    added again.
    """

    def __init__(self, peer: InterceptedPeer, line: ConnectionState, input_timeout: float) -> None:
        super().__init__(line, input_timeout)
        self._peer = peer

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        on_sent: Callable[[RequestId], None] | None = None,
        reply_to: RequestId | None = None,
        reserved: RequestId | None = None,
        **limits: Any,
    ) -> Raw:
        conversation = self._conversation
        under: RequestId | None = conversation.reserve() if reserved is None else reserved

        async def deliver(exchange: Exchange) -> Answer:
            nonlocal under
            message = exchange.message
            # An interceptor that proceeds twice sends two requests, and the second needs a new id.
            mine, under = under, None

            def sent(request_id: RequestId) -> None:
                exchange.message = Request(request_id, message.method, message.params)
                if on_sent is not None:
                    on_sent(request_id)

            return await OutboundRequests.request(
                self,
                message.method,
                None if isinstance(message.params, UnsetType) else message.params,
                on_progress=on_progress,
                on_sent=sent,
                reply_to=reply_to,
                reserved=mine,
                **limits,
            )

        assert under is not None
        token = under if on_progress is not None or method == "tools/call" else None
        asked = Request(under, method, conversation.with_metadata(method, params, token))
        exchange = self._peer._exchange(asked, reply_to)
        answer = await chain(self._peer.interceptors, deliver)(exchange)
        return answer if isinstance(answer, Raw) else Raw(answer or b"{}")

    async def notify(
        self, method: str, params: Mapping[str, Any] | Raw | None = None, **limits: Any
    ) -> None:
        async def deliver(note: Notification) -> None:
            given = None if isinstance(note.params, UnsetType) else note.params
            await OutboundRequests.notify(self, note.method, given, **limits)

        await self._peer.notify_through(deliver, Notification(method, with_meta(params, None, b"")))

    def progressed(self, event: ProgressReceived) -> None:
        pending = self.pending.get(event.request_id)
        if pending is None:
            return

        def deliver(note: Notification) -> None:
            if event.request_id in self.pending:
                OutboundRequests.progressed(self, ProgressReceived(event.request_id, note))
            # The response has arrived and is held back until this notification is delivered.
            else:
                pending.progressed(note)

        self._peer._inbound_notes.put(event.message, self._peer, deliver, event.request_id)

    async def _outcome(self, message: Request, pending: Pending, *how: Any, **more: Any) -> Raw:
        try:
            result = await super()._outcome(message, pending, *how, **more)
        except RpcError:
            # The server sent these notifications before its response, so deliver them first.
            await self._heard_before(pending)
            raise
        await self._heard_before(pending)
        return result

    async def _heard_before(self, pending: Pending) -> None:
        await self._peer._inbound_notes.passed()
        await pending.progress_delivered()

    def _give_notice(self, note: Notification, request_id: RequestId) -> None:
        exchange = self._peer._exchange(note, request_id)
        self._peer._outbound_notes.enter(exchange, self._line.send_quietly)


class InterceptedNotifier(Struct):
    """Sender of a server's notifications on connections that may lack interceptors.

    Notifications pass the given interceptors one at a time. Refused notifications are not sent.
    """

    interceptors: Sequence[Interceptor]
    _info: bytes | None  # the server's own `Implementation` object, as JSON

    async def to_session(self, edge: Peer, note: Notification) -> None:
        """Send a notification to a session.

        Raises:
            TransportError: The notification could not be sent.
        """

        async def deliver(passed: Notification) -> None:
            params = passed.params
            await edge.notify(passed.method, None if isinstance(params, UnsetType) else params)

        us, head = self._us(edge.conversation.sender), read_params_head(note.params)
        way = Direction.SERVER_TO_CLIENT
        told = Exchange(note, us, head, way, edge.channel.context, edge)
        await _say(told, self.interceptors, deliver)

    async def to_listener(self, exchange: Exchange, note: Notification) -> None:
        """Send a notification on the stream of a listening request.

        Raises:
            ChannelClosed: The stream is closed.
        """
        await self.tell(
            exchange, note, partial(exchange.edge.notify_caller, exchange), exchange.edge
        )

    async def tell(
        self,
        exchange: Exchange,
        note: Notification,
        deliver: Callable[[Notification], Awaitable[None]],
        edge: ReplyPath,
    ) -> None:
        """Send a notification that belongs to a request."""
        await _say(self.beside(exchange, note, edge), self.interceptors, deliver)

    def beside(
        self, exchange: Exchange, message: Request | Notification, edge: ReplyPath
    ) -> Exchange:
        """Return the exchange of an outbound message that belongs to a request."""
        return Exchange(
            message,
            self._us(exchange.caller),
            read_params_head(message.params),
            exchange.direction.reverse(),
            exchange.transport,
            edge,
            related=exchange.request_id,
        )

    def _us(self, them: Caller) -> Caller:
        return Caller(them.revision, them.stateless, them.principal, info=self._info)


async def _say(
    exchange: Exchange,
    interceptors: Sequence[Interceptor],
    deliver: Callable[[Notification], Awaitable[None]],
) -> None:
    """Send a notification through interceptors; if they refuse it, it is not sent.

    Raises:
        FairleadError: `deliver` or an interceptor raised it, and it is not an `RpcError`.
    """

    async def last(passed: Exchange) -> Answer:
        assert isinstance(passed.message, Notification)
        await deliver(passed.message)
        return None

    handler: Handler = chain(interceptors, last)
    try:
        await handler(exchange)
    except RpcError as exc:
        log.info("an interceptor refused %s: %s", exchange.method, exc.message)
    except FairleadError:
        raise
    except Exception:
        about = {ABOUT: exchange.message.params}
        log.exception("an interceptor failed; %s was not sent", exchange.method, extra=about)
