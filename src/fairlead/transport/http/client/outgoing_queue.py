"""Order of outgoing POSTs and the limit of concurrent calls."""

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

NOTIFY_TIMEOUT = 30.0  # seconds for a message without a response to be accepted
ORDER = 5.0  # seconds for which requests wait for a notification sent before them
HIGH_WATER = 1 << 20  # bytes queued before senders are asked to wait

log = logging.getLogger("fairlead.transport")

# Requests that take no slot: they are long-lived, or must not wait for other calls.
_UNCOUNTED = frozenset(("subscriptions/listen", "server/discover", "ping"))


class StartTask(Protocol):
    """Starter of the channel's tasks; with `last`, a task may finish when the channel closes."""

    def __call__(
        self, work: Coroutine[Any, Any, None], *, last: bool = False
    ) -> "asyncio.Task[None]": ...


class ConcurrencyLimit:
    """First-in, first-out limit of concurrent calls that counts the waiting bytes."""

    def __init__(self, size: int) -> None:
        self._semaphore = asyncio.Semaphore(size)
        self._waiting = 0
        self._drained = DrainWaiter()
        self._closed = False

    @property
    def congested(self) -> bool:
        return self._waiting > HIGH_WATER

    async def take(self, size: int) -> None:
        """Wait for a slot; `size` bytes count as queued in the meantime."""
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
        """Free the slot of a request if it still holds one."""
        if posted.counted:
            posted.counted = False
            self._semaphore.release()

    async def drain(self) -> None:
        """Wait until the queue is below its high-water mark.

        Raises:
            ChannelClosed: The queue was closed.
        """
        while self.congested:
            if self._closed:
                raise ChannelClosed(delivered=False)
            await self._drained.wait()

    def close(self) -> None:
        self._closed = True
        self._drained.wake()


class OutgoingQueue:
    """Sender that runs one task for each message and keeps notifications in order."""

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
        """`initialized` is awaited after the server has accepted `notifications/initialized`; later
        requests wait for it. `on_error` is called if a message without a response was not
        accepted.
        """
        self._sender = sender
        self._receiver = receiver
        self._headers = headers
        self._renewal = renewal
        self._slots = slots
        self._start = start
        self._initialized = initialized
        self._on_error = on_error
        self._gate: asyncio.Task[None] | None = None  # later requests wait for it

    def send_request(self, message: Request) -> None:
        posted = PendingPost(message, read_params_head(message.params))
        if posted.version is not None:
            self._sender.stateless_version = posted.version
        elif message.method == "initialize":
            self._renewal.opening(message)
        # Registered before the task starts: `add_headers` looks it up right after this call.
        self._receiver.pending[message.id] = posted
        posted.task = self._start(self._request(posted))

    def send_notification(self, message: Notification) -> None:
        if message.method == "notifications/cancelled":
            self._cancel(message)
            return
        first, self._gate = self._gate, None
        self._gate = self._start(self._notify(message, first), last=True)

    def send_body(self, body: bytes) -> None:
        """Send a message that has no response and needs no order."""
        self._start(self._send(body), last=True)

    def _cancel(self, message: Notification) -> None:
        """Abort the POST of a request, and notify a server of the handshake era."""
        request_id = cancelled_id_of(message)
        posted = None if request_id is None else self._receiver.pending.pop(request_id, None)
        if posted is not None and posted.task is not None:
            posted.task.cancel()
            # The server would cancel its own requests to the client on the stream that is closed
            # here.
            loop = asyncio.get_running_loop()
            for question in posted.questions:
                loop.call_soon(self._receiver.deliver, cancelled_notification(question))
        # In the stateless era closing the stream is the cancellation.
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
        """Send one request and wait for its response on any stream."""
        try:
            if self._gate is not None or self._renewal.task is not None:
                await self._pass_gate()
            if posted.message.method not in _UNCOUNTED:
                await self._slots.take(len(posted.body))
                posted.counted = True
            await self._sender.exchange(posted)
        except FairleadError as exc:
            self._receiver.lose(posted, exc)
        # An error in this task would be lost, and the caller would wait until its timeout.
        except Exception as exc:
            log.exception("unexpected error while sending a request")
            self._receiver.lose(posted, TransportError(f"{type(exc).__name__}: {exc}"))
        finally:
            self._slots.release_post(posted)

    async def _pass_gate(self) -> None:
        gate = self._gate
        await _after(gate)
        # Another notification may have replaced the gate while this task waited.
        if self._gate is gate:
            self._gate = None
        if self._renewal.task is not None:
            await asyncio.wait((self._renewal.task,))


async def _after(task: "asyncio.Task[None] | None") -> None:
    if task is not None and not task.done():
        await asyncio.wait((task,), timeout=ORDER)
