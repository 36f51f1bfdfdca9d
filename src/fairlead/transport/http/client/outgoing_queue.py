"""Order of outgoing POSTs and limit on concurrent calls.

A POST is repeated with a new session or new credentials if the server requires them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from ....errors import ChannelClosed, FairleadError, RequestTimeout, TransportError
from ....protocol.caller import read_params_head
from ....protocol.conversation.lifecycle_params import cancelled_id_of
from ....wire import Notification, Request, encode
from ....wire.sse import EventParser
from ...drain_waiter import DrainWaiter
from ...login_waits import LoginTimeout
from .http1.http_client import HttpClient
from .listen_stream import read_events
from .message_receiver import MessageReceiver
from .post_response_stream import PendingPost, ResponseReader
from .request_headers import RequestHeaders
from .response_messages import (
    cancelled_notification,
    failure_in,
    is_method_not_found,
    session_id_of,
    with_request_id,
)
from .session_renewal import SessionRenewal
from .session_teardown import SessionTeardown

__all__ = ["NOTIFY_TIMEOUT", "ConcurrencyLimit", "OutgoingQueue", "StartTask"]

NOTIFY_TIMEOUT = 30.0  # seconds for the server to accept a notification or response
ORDER = 5.0  # seconds for which requests wait for a notification sent before them
HIGH_WATER = 1 << 20  # bytes queued before senders are asked to wait

log = logging.getLogger("fairlead.transport")

# Requests that take no slot: they are long-lived, or must not wait for other calls.
_UNCOUNTED = frozenset(("subscriptions/listen", "server/discover", "ping"))


class StartTask(Protocol):
    """Function that starts a task of the channel. With `last`, closing waits for the task."""

    def __call__(
        self, work: Coroutine[Any, Any, None], *, last: bool = False
    ) -> "asyncio.Task[None]": ...


class ConcurrencyLimit:
    """Limit on concurrent calls. Further calls are queued, and their bytes are counted."""

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
            ChannelClosed: The limit was closed while too many messages were waiting.
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
        door: HttpClient,
        receiver: MessageReceiver,
        headers: RequestHeaders,
        renewal: SessionRenewal,
        teardown: SessionTeardown,
        slots: ConcurrencyLimit,
        *,
        responses: ResponseReader,
        start: StartTask,
        initialized: Callable[[], Awaitable[None]],
        on_error: Callable[[Exception], None],
        limit: int,
    ) -> None:
        """`initialized` is awaited after the server has accepted `notifications/initialized`; later
        requests wait for it. `on_error` is called if a message without a response was not
        accepted.
        """
        self._door = door
        self._receiver = receiver
        self._headers = headers
        self._renewal = renewal
        self._teardown = teardown
        self._slots = slots
        self._responses = responses
        self._start = start
        self._initialized = initialized
        self._on_error = on_error
        self._limit = limit
        # task of the last notification; later requests and notifications wait for it
        self._gate: asyncio.Task[None] | None = None
        self._stateless_version: str | None = None  # protocol version of the last stateless request
        self.executed_initialize = False  # True once `initialize` was answered with a 2xx status

    def send_request(self, message: Request) -> None:
        posted = PendingPost(message, read_params_head(message.params))
        if posted.version is not None:
            self._stateless_version = posted.version
        elif message.method == "initialize":
            self._renewal.opening(message)
        # Registered before the task starts: `add_headers` looks up the request after this call.
        self._receiver.pending[message.id] = posted
        posted.task = self._start(self._request(posted))

    def send_notification(self, message: Notification) -> None:
        if message.method == "notifications/cancelled":
            self._cancel(message)
            return
        first, self._gate = self._gate, None
        self._gate = self._start(self._notify(message, first), last=True)

    def send_body(self, body: bytes) -> None:
        """Send a message that has no response and whose order does not matter."""
        self._start(self._send(body), last=True)

    async def post(self, body: bytes) -> None:
        """POST a message that has no response.

        Raises:
            FairleadError: The server did not accept the message.
        """
        for again in (True, False):
            generation = self._headers.generation
            headers = self._headers.told(self._stateless_version)
            reply = await self._door.open("POST", headers, body)
            if reply.ok:
                # A server may respond with a stream nevertheless, and send messages on it.
                if reply.streams:
                    parser = EventParser(self._limit)
                    await read_events(reply, parser, self._receiver.receive_event)
                else:
                    await reply.read(self._limit)
                return
            error, _ = await reply.refusal()
            if not again or not await self._headers.refreshed(error, generation):
                raise error

    async def post_within(self, body: bytes, seconds: float, method: str = "") -> None:
        """Call `post` with a time limit; 0 means no limit.

        Raises:
            RequestTimeout: The server did not accept the message in time.
        """
        try:
            async with LoginTimeout(seconds or None, self._door.logins):
                await self.post(body)
        except TimeoutError as exc:
            raise RequestTimeout(seconds, method, what="Notify") from exc

    def _cancel(self, message: Notification) -> None:
        """Abort the POST of a request, and notify a server of the handshake era."""
        request_id = cancelled_id_of(message)
        posted = None if request_id is None else self._receiver.pending.pop(request_id, None)
        if posted is not None and posted.task is not None:
            posted.task.cancel()
            # The server cannot cancel its own requests on the closed stream, so cancel them here.
            loop = asyncio.get_running_loop()
            for question in posted.questions:
                loop.call_soon(self._receiver.hand_over, cancelled_notification(question))
        # In the stateless era closing the stream cancels the request.
        told = posted.sent and not posted.stateless if posted else self._headers.version is not None
        if told:
            self.send_body(encode(message))

    async def _notify(self, message: Notification, first: "asyncio.Task[None] | None") -> None:
        await _after(first)
        try:
            await self.post_within(encode(message), NOTIFY_TIMEOUT, message.method)
        except FairleadError as exc:
            self._on_error(exc)
            return
        if message.method == "notifications/initialized" and self._headers.version is not None:
            self._renewal.initialized()
            await self._initialized()

    async def _send(self, body: bytes) -> None:
        try:
            await self.post_within(body, NOTIFY_TIMEOUT)
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
            await self._exchange(posted)
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

    async def _exchange(self, posted: PendingPost) -> None:
        """POST a request and read its response; repeat it with a new session or credentials."""
        heading, message = self._headers, posted.message
        # Each remedy is tried once: a server that keeps refusing would cause an endless loop.
        may_renew = may_authorize = True
        while True:
            session = None if posted.stateless else heading.session_id
            generation = heading.generation
            headers = heading.asked(message, posted.head, posted.extra)
            posted.sent = True
            opens = message.method == "initialize" and not posted.stateless
            if opens:
                # Sent by the teardown, which ends the new session even if this task is cancelled.
                reply = await self._teardown.open(headers, posted.body)
            else:
                reply = await self._door.open("POST", headers, posted.body)
            if reply.ok:
                if opens:
                    self.executed_initialize = True
                    heading.opened(session_id_of(reply), None)
                await self._responses.take(posted, reply)
                return
            error, body = await reply.refusal()
            failure = failure_in(body)
            # 404 means an unknown session, unless the JSON-RPC error says "method not found".
            if session and reply.status == 404 and not is_method_not_found(failure, message):
                if not may_renew:
                    raise error
                may_renew = False
                await self._renewal.renewed(session, error)
                continue
            if may_authorize and await heading.refreshed(error, generation):
                may_authorize = False
                continue
            # A client that must authorize first needs the headers of the HTTP response.
            if failure is None or error.status == 401 or error.www_authenticate:
                raise error
            # A refused client learns nothing about the era of the server.
            if error.status == 403 and message.method == "server/discover":
                raise error
            self._receiver.receive(with_request_id(failure, message.id))
            return


async def _after(task: "asyncio.Task[None] | None") -> None:
    if task is not None and not task.done():
        await asyncio.wait((task,), timeout=ORDER)
