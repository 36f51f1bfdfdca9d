"""Notifications on their way through interceptors: one after the other, in the order they came."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TypeAlias

from msgspec import UnsetType

from ..errors import RpcError
from ..interceptor import Answer, Exchange, Handler, Interceptor, chain
from ..interceptor.direct_edge import DirectEdge
from ..limits import QUEUED_NOTIFICATION_BYTES, QUEUED_NOTIFICATIONS
from ..observe.logs import ABOUT
from ..protocol.caller import Caller, read_head
from ..protocol.envelope import Direction, TransportContext
from ..protocol.rewriting import members_of, string_of
from ..wire import Notification, Request, RequestId
from ..wire.messages import size_of
from .peer import Peer

__all__ = ["Passage"]

# What waits for slow interceptors; older notes are dropped.
MAX_NOTES = QUEUED_NOTIFICATIONS.value
MAX_BYTES = QUEUED_NOTIFICATION_BYTES.value

log = logging.getLogger("fairlead.peer")

Deliver: TypeAlias = Callable[[Notification], object]


class Passage:
    """One connection's notifications in one direction, or those that come alone.

    An interceptor refuses one by raising, or changes it by proceeding with another message. Without
    interceptors nothing waits and nothing is built.
    """

    def __init__(self, interceptors: Sequence[Interceptor], direction: Direction) -> None:
        self._interceptors = interceptors
        self._direction = direction
        self._queue: deque[tuple[Exchange, Deliver] | asyncio.Future[None]] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self.busy = False  # something is on its way

    def put(
        self,
        note: Notification,
        peer: Peer,
        deliver: Deliver,
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
            read_head(note.params),
            self._direction,
            peer.channel.context,
            peer,
            related=related,
        )
        self.enter(exchange, deliver)

    def put_alone(
        self, note: Notification, caller: Caller, context: TransportContext, deliver: Deliver
    ) -> None:
        """Let a notification through that came outside of any connection."""
        if not self._interceptors:
            deliver(note)
            return
        head, edge = read_head(note.params), DirectEdge(caller.principal)
        self.enter(Exchange(note, caller, head, self._direction, context, edge), deliver)

    def enter(self, exchange: Exchange, deliver: Deliver) -> None:
        """The same for one of which everything is known already; there are interceptors."""
        self._queue.append((exchange, deliver))
        self._size += _size(exchange.message)
        if len(self._queue) > MAX_NOTES or self._size > MAX_BYTES:
            QUEUED_NOTIFICATIONS.hit()
            self._drop()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self.busy = True

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
        if self._task is not None and _inside.get() is not self:
            mark = asyncio.get_running_loop().create_future()
            self._queue.append(mark)
            await mark

    def close(self) -> None:
        """Nobody is there any more."""
        task, self._task = self._task, None
        self.busy = False
        if task is not None:
            task.cancel()
        for entry in self._queue:
            if isinstance(entry, asyncio.Future) and not entry.done():
                entry.set_result(None)
        self._queue.clear()
        self._size = 0

    async def _run(self) -> None:
        _inside.set(self)
        while self._queue:
            entry = self._queue.popleft()
            if isinstance(entry, asyncio.Future):
                if not entry.done():
                    entry.set_result(None)
                continue
            exchange, deliver = entry
            self._size -= _size(exchange.message)
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
        self._task = None
        self.busy = False

    def _drop(self) -> None:
        for index, entry in enumerate(self._queue):
            if not isinstance(entry, asyncio.Future):
                self._size -= _size(entry[0].message)
                del self._queue[index]
                log.warning("interceptors are too slow: a notification was dropped")
                return


def _last(deliver: Deliver) -> Handler:
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


def _size(message: object) -> int:
    return size_of(message) if isinstance(message, Request | Notification) else 0


# An interceptor that asks something itself must not wait for what waits for it.
_inside: ContextVar[Passage | None] = ContextVar("_inside", default=None)
