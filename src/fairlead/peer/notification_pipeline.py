"""Notifications that pass through interceptors one at a time, in order of arrival."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TypeAlias

from ..errors import RpcError
from ..interceptor import Answer, Exchange, Handler, Interceptor, chain
from ..interceptor.direct_edge import NullReplyPath
from ..limits import QUEUED_NOTIFICATION_BYTES, QUEUED_NOTIFICATIONS
from ..observe.log_filter import ABOUT
from ..protocol.caller import Caller, read_params_head
from ..protocol.conversation.lifecycle_params import cancel_reason_of
from ..protocol.envelope import Direction, TransportContext
from ..transport.bounded_queue import WorkQueue
from ..wire import Notification, RequestId
from ..wire.messages import size_of
from .peer import Peer

__all__ = ["NotificationPipeline"]

# Limits for notifications that wait for slow interceptors; the oldest are dropped.
MAX_NOTES = QUEUED_NOTIFICATIONS.value
MAX_BYTES = QUEUED_NOTIFICATION_BYTES.value

log = logging.getLogger("fairlead.peer")

DeliverNotification: TypeAlias = Callable[[Notification], object]
# A future is a marker, which is resolved when all earlier notifications have passed.
_Entry: TypeAlias = "tuple[Exchange, DeliverNotification] | asyncio.Future[None]"


class NotificationPipeline(WorkQueue[_Entry]):
    """Queue of the notifications of one connection in one direction, or of notifications without a
    connection.

    An interceptor refuses a notification by raising, or changes it by proceeding with another
    message. Without interceptors, notifications are delivered directly.
    """

    def __init__(self, interceptors: Sequence[Interceptor], direction: Direction) -> None:
        super().__init__(_size, MAX_NOTES, MAX_BYTES)
        self._interceptors = interceptors
        self._direction = direction

    def put(
        self,
        note: Notification,
        peer: Peer,
        deliver: DeliverNotification,
        related: RequestId | None = None,
        sender: Caller | None = None,
    ) -> None:
        """Pass a notification through the interceptors; `deliver` receives the result.

        `sender` is the peer as interceptors see it, by default the sender known to the connection.
        """
        if not self._interceptors:
            deliver(note)
            return
        exchange = Exchange(
            note,
            peer.conversation.sender if sender is None else sender,
            read_params_head(note.params),
            self._direction,
            peer.channel.context,
            peer,
            related=related,
        )
        self.enter(exchange, deliver)

    def put_stateless(
        self,
        note: Notification,
        caller: Caller,
        context: TransportContext,
        deliver: DeliverNotification,
    ) -> None:
        """Pass a notification without a connection through the interceptors."""
        if not self._interceptors:
            deliver(note)
            return
        head, edge = read_params_head(note.params), NullReplyPath(caller.principal)
        self.enter(Exchange(note, caller, head, self._direction, context, edge), deliver)

    def enter(self, exchange: Exchange, deliver: DeliverNotification) -> None:
        """Queue an exchange that is already built. Requires at least one interceptor."""
        self.enqueue((exchange, deliver))

    def cancel(
        self,
        note: Notification,
        peer: Peer,
        cancel: Callable[[str], object],
        related: RequestId | None = None,
        sender: Caller | None = None,
    ) -> None:
        """Pass a cancellation through the interceptors; if refused, the request continues."""
        self.put(note, peer, lambda passed: cancel(cancel_reason_of(passed)), related, sender)

    async def passed(self) -> None:
        """Wait until all notifications queued so far are delivered; in an interceptor, return."""
        if self.busy and _inside.get() is not self:
            mark: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.enqueue(mark)
            await mark

    def close(self) -> None:
        """Drop all notifications and release all waiting tasks."""
        for entry in self.items:
            if isinstance(entry, asyncio.Future):
                _release(entry)
        super().close()

    async def handle(self, item: _Entry) -> None:
        if isinstance(item, asyncio.Future):
            _release(item)
            return
        _inside.set(self)
        exchange, deliver = item
        try:
            await chain(self._interceptors, _last(deliver))(exchange)
        except RpcError as exc:
            log.info("an interceptor refused %s: %s", exchange.method, exc.message)
        except (Exception, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is None or task.cancelling():
                # The queue's own task was cancelled, not an operation that an interceptor awaited.
                raise
            about = {ABOUT: exchange.message.params}
            why = "an interceptor failed; %s was not delivered"
            log.exception(why, exchange.method, extra=about)

    def on_drop(self) -> None:
        QUEUED_NOTIFICATIONS.hit()
        log.warning("interceptors are too slow: a notification was dropped")


def _release(mark: "asyncio.Future[None]") -> None:
    if not mark.done():
        mark.set_result(None)


def _last(deliver: DeliverNotification) -> Handler:
    async def handle(exchange: Exchange) -> Answer:
        assert isinstance(exchange.message, Notification)
        inside = _inside.get()
        # Tasks started by `deliver` copy the context, but are not part of an interceptor.
        _inside.set(None)
        try:
            deliver(exchange.message)
        finally:
            _inside.set(inside)
        return None

    return handle


def _size(entry: _Entry) -> int | None:
    return None if isinstance(entry, asyncio.Future) else size_of(entry[0].message)


# Set while an interceptor runs, whose own requests must not wait for the queue.
_inside: ContextVar[NotificationPipeline | None] = ContextVar("_inside", default=None)
