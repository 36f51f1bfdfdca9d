"""The order in which messages leave in their POSTs, and how many calls are made at once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from ....errors import ChannelClosed, FairleadError, TransportError
from ....protocol.caller import read_params_head
from ....protocol.conversation.lifecycle_params import cancelled_id_of
from ....wire import Notification, Request, encode
from ...drain_waiter import DrainWaiter
from .message_receiver import MessageReceiver
from .post_response_stream import PendingPost
from .post_sender import PostSender
from .request_headers import RequestHeaders
from .response_messages import cancelled_notification
from .session_renewal import SessionRenewal

__all__ = ["NOTIFY_TIMEOUT", "ConcurrencyLimit", "OutgoingQueue", "StartTask"]

NOTIFY_TIMEOUT = 30.0  # seconds for a message without an answer to be accepted
ORDER = 5.0  # seconds that requests wait for a notification that was sent before them
HIGH_WATER = 1 << 20  # bytes that wait for their turn before senders are asked to wait

log = logging.getLogger("fairlead.transport")

# Requests that are not counted as calls: they last, or must not wait for any.
_UNCOUNTED = frozenset(("subscriptions/listen", "server/discover", "ping"))


class StartTask(Protocol):
    """Starts a task of the channel; one that is `last` may finish when the channel closes."""

    def __call__(
        self, work: Coroutine[Any, Any, None], *, last: bool = False
    ) -> "asyncio.Task[None]": ...


class ConcurrencyLimit:
    """A bound on calls, in order, that knows how much is waiting."""

    def __init__(self, size: int) -> None:
        self._semaphore = asyncio.Semaphore(size)
        self._waiting = 0
        self._drained = DrainWaiter()
        self._closed = False

    @property
    def congested(self) -> bool:
        return self._waiting > HIGH_WATER

    async def take(self, size: int) -> None:
        """Wait for a slot; meanwhile so many bytes are waiting."""
        if not self._semaphore.locked():
            await self._semaphore.acquire()
            return
        self._waiting += size
        try:
            await self._semaphore.acquire()
        finally:
            self._waiting -= size
            if not self.congested:
                self._drained.wake()

    def release_post(self, posted: PendingPost) -> None:
        """Free the slot of a request, if it has one still."""
        if posted.counted:
            posted.counted = False
            self._semaphore.release()

    async def drain(self) -> None:
        """Wait until little is waiting. Raises `ChannelClosed` if the queue is closed."""
        while self.congested:
            if self._closed:
                raise ChannelClosed(delivered=False)
            await self._drained.wait()

    def close(self) -> None:
        self._closed = True
        self._drained.wake()


class OutgoingQueue:
    """Sends each message in a task of its own; notifications stay in order."""

    def __init__(
        self,
        sender: PostSender,
        receiver: MessageReceiver,
        headers: RequestHeaders,
        renewal: SessionRenewal,
        slots: ConcurrencyLimit,
        *,
        start: StartTask,
        initialized: Callable[[], Awaitable[None]],
        on_error: Callable[[Exception], None],
    ) -> None:
        """`initialized` is called once the server knows that a session is, and ends the wait for
        that notification. `on_error` learns why a message without a response was not accepted."""
        self._sender = sender
        self._receiver = receiver
        self._headers = headers
        self._renewal = renewal
        self._slots = slots
        self._start = start
        self._initialized = initialized
        self._on_error = on_error
        self._gate: asyncio.Task[None] | None = None  # what later requests wait for

    def send_request(self, message: Request) -> None:
        posted = PendingPost(message, read_params_head(message.params))
        if posted.version is not None:
            self._sender.stateless_version = posted.version
        elif message.method == "initialize":
            self._renewal.opening(message)
        self._receiver.pending[message.id] = posted
        posted.task = self._start(self._request(posted))

    def send_notification(self, message: Notification) -> None:
        if message.method == "notifications/cancelled":
            self._cancel(message)
            return
        first, self._gate = self._gate, None
        self._gate = self._start(self._notify(message, first), last=True)

    def send_body(self, body: bytes) -> None:
        """Send a message that nothing waits for."""
        self._start(self._send(body), last=True)

    def _cancel(self, message: Notification) -> None:
        """End the POST of a request, and tell a server of the handshake era."""
        request_id = cancelled_id_of(message)
        posted = None if request_id is None else self._receiver.pending.pop(request_id, None)
        if posted is not None and posted.task is not None:
            posted.task.cancel()
            # The server would take its questions back on the stream that we leave.
            loop = asyncio.get_running_loop()
            for question in posted.questions:
                loop.call_soon(self._receiver.deliver, cancelled_notification(question))
        told = posted.sent and not posted.stateless if posted else self._headers.version is not None
        if told:
            self.send_body(encode(message))

    async def _notify(self, message: Notification, first: "asyncio.Task[None] | None") -> None:
        await _after(first)
        try:
            await self._sender.post_within(encode(message), NOTIFY_TIMEOUT, message.method)
        except FairleadError as exc:
            self._on_error(exc)
            return
        if message.method == "notifications/initialized" and self._headers.version is not None:
            self._renewal.initialized()
            await self._initialized()

    async def _send(self, body: bytes) -> None:
        try:
            await self._sender.post_within(body, NOTIFY_TIMEOUT)
        except FairleadError as exc:
            self._on_error(exc)

    async def _request(self, posted: PendingPost) -> None:
        """One request, from its POST to its response, wherever that comes from."""
        try:
            if self._gate is not None or self._renewal.task is not None:
                await self._pass_gate()
            if posted.message.method not in _UNCOUNTED:
                await self._slots.take(len(posted.body))
                posted.counted = True
            await self._sender.exchange(posted)
        except FairleadError as exc:
            self._receiver.lose(posted, exc)
        except Exception as exc:
            log.exception("a request failed")
            self._receiver.lose(posted, TransportError(f"{type(exc).__name__}: {exc}"))
        finally:
            self._slots.release_post(posted)

    async def _pass_gate(self) -> None:
        gate = self._gate
        await _after(gate)
        if self._gate is gate:
            self._gate = None
        if self._renewal.task is not None:
            await asyncio.wait((self._renewal.task,))


async def _after(task: "asyncio.Task[None] | None") -> None:
    if task is not None and not task.done():
        await asyncio.wait((task,), timeout=ORDER)
