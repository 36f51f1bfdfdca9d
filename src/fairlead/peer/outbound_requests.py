"""Requests and notifications to the peer; each request is settled exactly once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, UnsetType

from ..errors import ChannelClosed, FairleadError, RequestTimeout, RpcError
from ..protocol.conversation.conversation import Fill
from ..protocol.conversation.conversation_events import ProgressReceived
from ..wire import Failure, Notification, Params, Request, RequestId, Success
from .connection_state import FEW, ConnectionState, copy_of

__all__ = ["Deadlines", "OnProgress", "OutboundRequests", "Pending"]

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """Many deadlines by key on one timer of the event loop, each with a callback.

    Nearly every deadline is removed long before it expires, so adding and removing must be cheap:
    each is one dictionary operation. The timer is scheduled for the earliest deadline known at that
    time. When it fires, it handles the expired deadlines and is scheduled for the earliest
    remaining deadline. A deadline costs 0.5 µs this way, 2.5 µs with `call_later` and 7 to 11 µs
    with `asyncio.timeout`.
    """

    __slots__ = ("_due", "_loop", "_paused", "_paused_at", "_timer", "_timer_at")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: dict[K, tuple[float, Callable[[K], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._paused = 0
        self._paused_at = 0.0

    def add(self, key: K, seconds: float, expired: Callable[[K], None]) -> None:
        """Call `expired(key)` after `seconds`, unless the key is removed or added again."""
        # While paused, deadlines are relative to the start of the pause; `resume` shifts them.
        at = (self._paused_at if self._paused else self._loop.time()) + seconds
        self._due[key] = (at, expired)
        if not self._paused and (self._timer is None or at < self._timer_at):
            self._arm(at)

    def remove(self, key: K) -> None:
        """Remove a deadline. The timer stays scheduled, because rescheduling would cost more."""
        self._due.pop(key, None)

    def pause(self) -> None:
        """Stop all deadlines until `resume` was called as often as `pause`."""
        self._paused += 1
        if self._paused == 1:
            self._paused_at = self._loop.time()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def resume(self) -> float:
        """End a pause and return its length in seconds; 0.0 while another pause lasts."""
        self._paused -= 1
        if self._paused:
            return 0.0
        shift = self._loop.time() - self._paused_at
        if self._due:
            self._due = {key: (at + shift, call) for key, (at, call) in self._due.items()}
            self._arm(min(at for at, _ in self._due.values()))
        return shift

    def close(self) -> None:
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._loop.time()
        expired = [key for key, (at, _) in self._due.items() if at <= now]
        calls = [(key, self._due.pop(key)[1]) for key in expired]
        if self._due:
            self._arm(min(at for at, _ in self._due.values()))
        # Called last, because a callback may add and remove deadlines.
        for key, call in calls:
            call(key)


log = logging.getLogger("fairlead.peer")

# Called with progress, total and message of a notification. May be a coroutine function.
OnProgress = Callable[[float, float | None, str | None], Awaitable[None] | None]
# Called at once with the unchanged progress notification, for code that forwards it.
OnProgressNotification = Callable[[Notification], None]


class Pending(Struct):
    """An outbound request that waits for its outcome; progress is delivered before it."""

    method: str
    future: "asyncio.Future[Raw]"
    timeout: float
    gives_up_at: float  # latest deadline, even if progress restarts the timeout
    _on_progress: OnProgress | None
    _overhear: OnProgressNotification | None = None
    _said: list[dict[str, Any]] | None = None  # progress that waits for a slow callback
    _runner: "asyncio.Task[None] | None" = None

    def settle(self, result: Raw | Exception) -> None:
        """Settle the request. Only the first outcome counts."""
        # Progress that arrived before the result is delivered before it, also to a slow callback.
        if self._runner is not None and not self._runner.done():
            self._runner.add_done_callback(lambda _: self._settle(result))
        else:
            self._settle(result)

    def progressed(self, notification: Notification) -> None:
        """Pass a progress notification to the callback, in order, without waiting for it."""
        if self._overhear is not None:
            self._overhear(notification)
            return
        if self._on_progress is None or isinstance(notification.params, UnsetType):
            return
        try:
            params = msgspec.json.decode(notification.params, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            return
        if self._said is not None:
            self._said.append(params)
            # A callback that is slower than the peer misses the oldest notifications.
            del self._said[:-100]
            return
        waiting = self._call(params)
        if waiting is not None:
            self._said = []
            self._runner = asyncio.ensure_future(self._run(waiting))

    async def progress_delivered(self) -> None:
        """Wait until the callback has processed all progress received so far."""
        if self._runner is not None:
            await asyncio.wait((self._runner,))

    async def _run(self, waiting: Awaitable[None] | None) -> None:
        assert self._said is not None
        while True:
            if waiting is not None:
                try:
                    await waiting
                except Exception:
                    log.exception("the progress callback of %s failed", self.method)
            if not self._said:
                break
            waiting = self._call(self._said.pop(0))
        self._said = None

    def _call(self, params: dict[str, Any]) -> Awaitable[None] | None:
        assert self._on_progress is not None
        try:
            return self._on_progress(
                params.get("progress", 0), params.get("total"), params.get("message")
            )
        except Exception:
            log.exception("the progress callback of %s failed", self.method)
            return None

    def _settle(self, result: Raw | Exception) -> None:
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class CallbackPending(Struct):
    """A forwarded request whose outcome is passed to a callback at once."""

    method: str
    timeout: float
    gives_up_at: float
    settle: Callable[[Raw | Exception], None]  # called once by the owner of the `pending` table
    _overhear: OnProgressNotification | None

    def progressed(self, notification: Notification) -> None:
        if self._overhear is not None:
            self._overhear(notification)


class OutboundRequests:
    """The outbound requests in flight on one connection, each with its deadline."""

    def __init__(self, line: ConnectionState, input_timeout: float) -> None:
        """`input_timeout` limits how long a request for user input may pause the deadlines."""
        self._line = line
        self._loop = line.loop
        self._channel = line.channel
        self._conversation = line.conversation
        self._input_timeout = input_timeout
        self._deadlines: Deadlines[RequestId] = Deadlines(line.loop)
        self.pending: dict[RequestId, Pending | CallbackPending] = {}
        self.wanting = 0  # requests that wait until the channel is not congested
        # Called with a request id and the unknown members of its response.
        self.on_extra_members: Callable[[RequestId, dict[str, Raw]], None] | None = None
        # Sends a request that is only forwarded, if request ids are numbers.
        self._send_request: Callable[[Any, str, Any], None] | None = None
        if line.conversation.numbers:
            self._send_request = line.channel.send_request

    async def request(
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
    ) -> Raw:
        """Send a request and wait for the bytes of its result.

        A `timeout` of 0 means no limit. With `max_total`, progress restarts the timeout until that
        many seconds have passed in all. `on_sent` gets the id of the request. A `quiet` request is
        not cancelled at the peer when its caller stops waiting. `reply_to` is the request of the
        peer that this request belongs to, and `reserved` is an id from `reserve`.

        Raises:
            RpcError: The peer answered with an error.
            RequestTimeout: No response came in time, or the request could not be sent in time.
            ChannelClosed: The connection ended first.
            LocalProtocolError: The request is not allowed now.
        """
        if not self._line.open:
            raise self._line.not_connected_error()
        channel, loop = self._channel, self._loop
        started = loop.time()
        if channel.congested:
            await self._wait_writable(timeout, method)
        track = on_progress is not None or method == "tools/call"
        message = self._conversation.request(method, params, track=track, reserved=reserved)
        future: asyncio.Future[Raw] = loop.create_future()
        gives_up_at = started + max_total if max_total else 0.0
        pending = Pending(method, future, timeout, gives_up_at, on_progress)
        return await self._outcome(message, pending, on_sent, reply_to, quiet=quiet)

    async def forward(
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
    ) -> Raw:
        """Forward a request of another connection and wait for its result.

        Unlike in `request`, `fill` builds the params for the id of the new request, and `overhear`
        is called with the unchanged progress notifications.

        Raises:
            RpcError, RequestTimeout, ChannelClosed, LocalProtocolError: As for `request`.
        """
        if not self._line.open:
            raise self._line.not_connected_error()
        started = self._loop.time()
        if self._channel.congested:
            await self._wait_writable(timeout, method)
        message = self._conversation.forward_request(method, fill, extra)
        future: asyncio.Future[Raw] = self._loop.create_future()
        gives_up_at = started + max_total if max_total else 0.0
        pending = Pending(method, future, timeout, gives_up_at, None, overhear)
        return await self._outcome(message, pending, on_sent, reply_to)

    def forward_nowait(
        self,
        method: str,
        fill: Fill,
        done: Callable[[Raw | Exception], None],
        *,
        extra: dict[str, Raw] | None = None,
        timeout: float = 0.0,
        max_total: float = 0.0,
        overhear: OnProgressNotification | None = None,
    ) -> RequestId:
        """Forward a request without a task; `done` is called once with the result or the exception.

        Raises:
            ChannelClosed: The request was certainly not sent.
            LocalProtocolError: The request is not allowed now.
        """
        if not self._line.open:
            raise self._line.not_connected_error()
        channel, conversation = self._channel, self._conversation
        if len(self.pending) > FEW:
            channel.join_writes()
        write = self._send_request
        request_id: RequestId = 0
        try:
            # Raw params need no `Request` object, which is the most frequent case in a relay.
            if write is not None and type(fill) is Raw and extra is None:
                request_id = conversation.begin(method)
                write(request_id, method, fill)
            else:
                message = conversation.forward_request(method, fill, extra)
                request_id = message.id
                channel.send(message)
        except ChannelClosed:
            conversation.abandon(request_id, "not sent")
            raise
        gives_up_at = self._loop.time() + max_total if max_total else 0.0
        self.pending[request_id] = CallbackPending(method, timeout, gives_up_at, done, overhear)
        if timeout:
            self._deadlines.add(request_id, timeout, self._expired)
        return request_id

    def cancel_forwarded(self, request_id: RequestId, reason: str) -> None:
        """Cancel a request sent with `forward_nowait` and notify the peer."""
        self._abandon(request_id, reason)

    async def notify(
        self,
        method: str,
        params: Mapping[str, Any] | Raw | None = None,
        *,
        timeout: float = 30.0,
    ) -> None:
        """Send a notification; wait while the peer reads slowly.

        Raises:
            ChannelClosed: The notification was certainly not delivered.
            RequestTimeout: The peer does not read; the notification was not sent.
        """
        if not self._line.open:
            raise self._line.not_connected_error()
        if self._channel.congested:
            await self._wait_writable(timeout, method)
        self._channel.send(self._conversation.notification(method, params))

    async def _outcome(
        self,
        message: Request,
        pending: Pending,
        on_sent: Callable[[RequestId], None] | None,
        reply_to: RequestId | None,
        *,
        quiet: bool = False,
    ) -> Raw:
        """Send a request and wait for its outcome."""
        channel = self._channel
        if len(self.pending) > FEW:
            channel.join_writes()
        try:
            channel.send(message, reply_to=reply_to)
        except ChannelClosed as exc:
            self._conversation.abandon(message.id, "not sent")
            raise await self._line.wait_for_close_reason(exc) from exc
        if on_sent is not None:
            on_sent(message.id)
        self.pending[message.id] = pending
        if pending.timeout:
            self._deadlines.add(message.id, pending.timeout, self._expired)
        try:
            return await pending.future
        except asyncio.CancelledError as exc:
            reason = exc.args[0] if exc.args else None
            said = reason if isinstance(reason, str) else "cancelled by the caller"
            self._abandon(message.id, said, quiet=quiet)
            raise

    async def _wait_writable(self, timeout: float, method: str) -> None:
        # Loaded on first use: a starting server needs no timeouts.
        from ..transport import timeouts

        self.wanting += 1
        try:
            async with timeouts.timeout(timeout or None):
                await self._channel.drain()
        except TimeoutError as exc:
            error = RequestTimeout(timeout, method)
            error.delivered = False
            raise error from exc
        finally:
            self.wanting -= 1

    # Outcomes

    def receive_response(self, message: Success | Failure) -> None:
        """Settle the request that an accepted response answers."""
        request_id = message.id
        pending = None if request_id is None else self.pending.pop(request_id, None)
        if pending is None or request_id is None:
            return
        self._deadlines.remove(request_id)
        if message.extra is not None and self.on_extra_members is not None:
            self.on_extra_members(request_id, message.extra)
        if isinstance(message, Success):
            pending.settle(message.result)
        else:
            pending.settle(RpcError(message.code, message.message, raw=bytes(message.error)))

    def progressed(self, event: ProgressReceived) -> None:
        """Pass progress to the request and restart its timeout."""
        pending = self.pending.get(event.request_id)
        if pending is None:
            return
        if pending.gives_up_at and pending.timeout:
            left = min(pending.timeout, pending.gives_up_at - self._loop.time())
            self._deadlines.add(event.request_id, max(left, 0.0), self._expired)
        pending.progressed(event.message)

    def fail_request(self, request_id: RequestId, error: FairleadError, reason: str) -> None:
        """Fail a request whose response is missing or unreadable."""
        pending = self.pending.get(request_id)
        if pending is not None:
            self._abandon(request_id, reason, quiet=True)
            pending.settle(error)

    def fail_all(self, end: ChannelClosed) -> None:
        """Fail all pending requests with the reason why the connection ended."""
        pending, self.pending = self.pending, {}
        for waiting in pending.values():
            again = copy_of(end)
            again.__cause__ = end.__cause__
            waiting.settle(again)

    def close(self) -> None:
        """Stop all deadlines."""
        self._deadlines.close()

    def _expired(self, request_id: RequestId) -> None:
        pending = self.pending.get(request_id)
        if pending is not None:
            # The error message distinguishes a silent event stream from a missing response.
            what = "SSE response" if self._channel.waits_for_events(request_id) else "Request"
            self._abandon(request_id, "timeout")
            output = self._line.output_within(pending.timeout)
            error = RequestTimeout(pending.timeout, pending.method, what=what, output=output)
            pending.settle(error)

    def _abandon(self, request_id: RequestId, reason: str, *, quiet: bool = False) -> None:
        """Forget a request and notify the peer, without waiting for the write."""
        self.pending.pop(request_id, None)
        self._deadlines.remove(request_id)
        notification = self._conversation.abandon(request_id, reason)
        if notification is not None and self._line.end is None and not quiet:
            self._give_notice(notification, request_id)

    def _give_notice(self, note: Notification, request_id: RequestId) -> None:
        """Notify the peer that a request needs no response."""
        self._line.send_quietly(note)

    # Paused deadlines

    def pause_deadlines(self, question: asyncio.Task[None]) -> None:
        """Pause all deadlines while a user or a model is asked for input (PRO-37).

        The request that caused the question is not known here, so the deadlines of all requests are
        paused, for at most `input_timeout` seconds.
        """
        self._deadlines.pause()
        limit = self._loop.call_later(self._input_timeout, self._go_on)

        def answered(_: object) -> None:
            # After the limit has expired, `_go_on` was already called.
            if limit.when() > self._loop.time():
                limit.cancel()
                self._go_on()

        question.add_done_callback(answered)

    def pause_for_login(self, waiting: bool) -> None:
        """Pause all deadlines while requests wait for a user to log in."""
        if waiting:
            self._deadlines.pause()
        else:
            self._go_on()

    def _go_on(self) -> None:
        shift = self._deadlines.resume()
        for pending in self.pending.values():
            if pending.gives_up_at:
                pending.gives_up_at += shift
