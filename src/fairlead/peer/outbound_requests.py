"""What we ask the peer, and tell it unasked: each request of ours is settled exactly once."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw

from ..errors import ChannelClosed, FairleadError, RequestTimeout, RpcError
from ..protocol.conversation.conversation import Fill
from ..protocol.conversation.conversation_events import ProgressReceived
from ..wire import Failure, Notification, Params, Request, RequestId, Success
from .connection_state import FEW, ConnectionState
from .deadlines import Deadlines
from .pending_requests import CallbackPending, OnProgress, OnProgressNotification, Pending

__all__ = ["OutboundRequests"]


class OutboundRequests:
    """Requests of ours under way on one connection, each with its time limit."""

    def __init__(self, line: ConnectionState, input_timeout: float) -> None:
        """`input_timeout` is how long a question to a person may keep our requests from ageing."""
        self._line = line
        self._loop = line.loop
        self._channel = line.channel
        self._conversation = line.conversation
        self._input_timeout = input_timeout
        self._deadlines: Deadlines[RequestId] = Deadlines(line.loop)
        self.pending: dict[RequestId, Pending | CallbackPending] = {}
        self.wanting = 0  # requests of ours that wait until the channel is not congested
        # Hears of members that an answer has besides its result: of which request, and which.
        self.on_extra_members: Callable[[RequestId, dict[str, Raw]], None] | None = None
        # Writes a request that is only passed on, where ids are numbers.
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
        """Ask the peer something and wait for the result's bytes.

        With `max_total`, progress restarts the clock until so many seconds have passed in all; a
        `timeout` of 0 means no limit. `on_sent` learns the id; a `quiet` request is not cancelled
        at the peer when nobody waits any more; `reply_to` is the request of the peer that makes us
        ask; `reserved` is an id that it has already.

        Raises:
            RpcError: the peer said no.
            RequestTimeout: no answer in time; the peer was told.
            ChannelClosed: the connection ended first.
            LocalProtocolError: this may not be asked now.
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
        """Pass somebody else's request on: like `request`, but the params are made by `fill`, for
        the id that it gets, and progress is handed over as it came.
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
        """The same for those who need no task: `done` gets what `forward` returns or raises, once.

        Raises:
            ChannelClosed: it certainly was not sent.
            LocalProtocolError: this may not be asked now.
        """
        if not self._line.open:
            raise self._line.not_connected_error()
        channel, conversation = self._channel, self._conversation
        if len(self.pending) > FEW:
            channel.join_writes()
        write = self._send_request
        request_id: RequestId = 0
        try:
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
        """Nobody waits for a request of ours that was handed on: the peer is told."""
        self._abandon(request_id, reason)

    async def notify(
        self,
        method: str,
        params: Mapping[str, Any] | Raw | None = None,
        *,
        timeout: float = 30.0,
    ) -> None:
        """Tell the peer something.

        Raises:
            ChannelClosed: it certainly did not arrive.
            RequestTimeout: the peer reads nothing; it was not sent.
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
        """Send a request and wait for what becomes of it."""
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
        self.wanting += 1
        try:
            async with asyncio.timeout(timeout or None):
                await self._channel.drain()
        except TimeoutError as exc:
            error = RequestTimeout(timeout, method)
            error.delivered = False
            raise error from exc
        finally:
            self.wanting -= 1

    # What becomes of a request

    def receive_response(self, message: Success | Failure) -> None:
        """Take in an answer; the conversation knows of it already."""
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
        """Take in that something goes on."""
        pending = self.pending.get(event.request_id)
        if pending is None:
            return
        if pending.gives_up_at and pending.timeout:
            left = min(pending.timeout, pending.gives_up_at - self._loop.time())
            self._deadlines.add(event.request_id, max(left, 0.0), self._expired)
        pending.progressed(event.message)

    def fail_request(self, request_id: RequestId, error: FairleadError, reason: str) -> None:
        """There will be no answer, or none that can be read: whoever waits need not go on."""
        pending = self.pending.get(request_id)
        if pending is not None:
            self._abandon(request_id, reason, quiet=True)
            pending.settle(error)

    def fail_all(self, end: ChannelClosed) -> None:
        """Every request fails now, once, with the reason."""
        pending, self.pending = self.pending, {}
        for waiting in pending.values():
            again = type(end)(
                end.reason,
                delivered=end.delivered,
                exit_code=end.exit_code,
                stderr=end.stderr,
                public=end.public,
            )
            again.__cause__ = end.__cause__
            waiting.settle(again)

    def close(self) -> None:
        """No clock runs any more."""
        self._deadlines.close()

    def _expired(self, request_id: RequestId) -> None:
        pending = self.pending.get(request_id)
        if pending is not None:
            # It makes a difference to those who read the error.
            what = "SSE response" if self._channel.waits_for_events(request_id) else "Request"
            self._abandon(request_id, "timeout")
            pending.settle(RequestTimeout(pending.timeout, pending.method, what=what))

    def _abandon(self, request_id: RequestId, reason: str, *, quiet: bool = False) -> None:
        """Nobody waits any more: forget it here, and tell the peer without waiting for that."""
        self.pending.pop(request_id, None)
        self._deadlines.remove(request_id)
        notification = self._conversation.abandon(request_id, reason)
        if notification is not None and self._line.end is None and not quiet:
            self._give_notice(notification, request_id)

    def _give_notice(self, note: Notification, request_id: RequestId) -> None:
        """Tell the peer that a request of ours needs no answer any more."""
        self._line.send_quietly(note)

    # Clocks that stand still

    def pause_deadlines(self, question: asyncio.Task[None]) -> None:
        """PRO-37: while a person or a model of ours is asked, the calls that wait do not age.

        Which call the question belongs to cannot be known here, so it holds for all of them; but
        not for longer than such an answer may take.
        """
        self._deadlines.pause()
        limit = self._loop.call_later(self._input_timeout, self._go_on)

        def answered(_: object) -> None:
            if limit.when() > self._loop.time():
                limit.cancel()
                self._go_on()

        question.add_done_callback(answered)

    def _go_on(self) -> None:
        shift = self._deadlines.resume()
        for pending in self.pending.values():
            if pending.gives_up_at:
                pending.gives_up_at += shift
