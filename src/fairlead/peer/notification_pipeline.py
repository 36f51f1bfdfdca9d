"""Notifications on their way through interceptors: one after the other, in the order they came."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TypeAlias

from msgspec import UnsetType

from ..errors import RpcError
from ..interceptor import Answer, Exchange, Handler, Interceptor, chain
from ..interceptor.direct_edge import NullReplyPath
from ..limits import QUEUED_NOTIFICATION_BYTES, QUEUED_NOTIFICATIONS
from ..observe.log_filter import ABOUT
from ..protocol.caller import Caller, read_params_head
from ..protocol.envelope import Direction, TransportContext
from ..protocol.json_edit import members_of, string_of
from ..transport.bounded_queue import WorkQueue
from ..wire import Notification, RequestId
from ..wire.messages import size_of
from .peer import Peer

__all__ = ["NotificationPipeline"]

# What waits for slow interceptors; older notes are dropped.
MAX_NOTES = QUEUED_NOTIFICATIONS.value
MAX_BYTES = QUEUED_NOTIFICATION_BYTES.value

log = logging.getLogger("fairlead.peer")

DeliverNotification: TypeAlias = Callable[[Notification], object]
_Entry: TypeAlias = (
    "tuple[Exchange, DeliverNotification] | asyncio.Future[None]"  # the second marks a place
)


class NotificationPipeline(WorkQueue[_Entry]):
    """One connection's notifications in one direction, or those that come alone.

    An interceptor refuses one by raising, or changes it by proceeding with another message. Without
    interceptors nothing waits and nothing is built.
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
        """Let a notification through; `deliver` gets what comes out.

        `sender` is the peer as interceptors are to see it; without it, as its connection knows it.
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
        """Let a notification through that came outside of any connection."""
        if not self._interceptors:
            deliver(note)
            return
        head, edge = read_params_head(note.params), NullReplyPath(caller.principal)
        self.enter(Exchange(note, caller, head, self._direction, context, edge), deliver)

    def enter(self, exchange: Exchange, deliver: DeliverNotification) -> None:
        """The same for one of which everything is known already; there are interceptors."""
        self.enqueue((exchange, deliver))

    def cancel(
        self,
        note: Notification,
        peer: Peer,
        cancel: Callable[[str], object],
        related: RequestId | None = None,
        sender: Caller | None = None,
    ) -> None:
        """The same for a cancellation: if it does not get through, what it is about goes on."""
        self.put(note, peer, lambda passed: cancel(_reason(passed)), related, sender)

    async def passed(self) -> None:
        """Wait until what came before is through: what comes after it comes behind it."""
        if self.busy and _inside.get() is not self:
            mark: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.enqueue(mark)
            await mark

    def close(self) -> None:
        """Nobody is there any more."""
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
            log.info("%s was held back: %s", exchange.method, exc.message)
        except (Exception, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # it was us, not something that an interceptor waited for
            about = {ABOUT: exchange.message.params}
            why = "an interceptor failed; %s was not passed on"
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
        _inside.set(None)  # what is begun there is not an interceptor's doing
        try:
            deliver(exchange.message)
        finally:
            _inside.set(inside)
        return None

    return handle


def _reason(note: Notification) -> str:
    params = None if isinstance(note.params, UnsetType) else members_of(note.params)
    return string_of((params or {}).get("reason")) or ""


def _size(entry: _Entry) -> int | None:
    return None if isinstance(entry, asyncio.Future) else size_of(entry[0].message)


# An interceptor that asks something itself must not wait for what waits for it.
_inside: ContextVar[NotificationPipeline | None] = ContextVar("_inside", default=None)
