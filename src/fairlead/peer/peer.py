"""One connection, driven: a channel, the rules of its conversation, and what is under way on it.

The owner task runs the channel and, in its `finally`, settles and cleans up everything; so any
task may open, share and close a connection, in any order. This is the only place where a task per
inbound request is started.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Mapping
from typing import Any, Literal, Protocol

from msgspec import Raw, UnsetType
from msgspec.structs import replace

from ..errors import (
    ChannelClosed,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
    RpcError,
)
from ..interceptor import Answer, Exchange, Handler, Offence, OnOffence
from ..observe.logs import ABOUT
from ..protocol.conversation import Conversation, Fill, Role
from ..protocol.envelope import Direction, SessionContext
from ..protocol.events import Answered, Asked, Cancelled, Event, Progressed, Refused, Stray, Told
from ..protocol.methods import is_question
from ..transport.base import Channel, Incoming, Lost
from ..wire import (
    Batch,
    Failure,
    Notification,
    Params,
    Request,
    RequestId,
    Success,
    encode,
    failure,
)
from ..wire.codes import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from .deadlines import Deadlines
from .outcome import Handed, OnProgress, Overhear, Pending

__all__ = ["Inline", "OnCancelled", "Peer", "Take", "Taken", "refusal_of"]

MAX_IN_FLIGHT = 256  # requests of the peer handled at once
MAX_QUEUED = 1024  # and waiting for their turn, before they are refused
MAX_QUEUED_BYTES = 16 << 20
FEW = 4  # with more than so many under way, it pays to write their messages together
EOF_GRACE = 1.5  # seconds without any answer, after which a peer that ended its side hears no more
LAST_WORDS = 1.5  # seconds that a channel may take to find out why it has ended
CANCEL_GRACE = 1.0  # seconds that cancelled handlers may take to clean up
GARBAGE_LINES, GARBAGE_BYTES = 100, 64 << 10  # without one message, a connection is not one

log = logging.getLogger("fairlead.peer")

_MESSAGES = (Success, Notification, Failure, Request)

# Answers at once what needs no task, or returns None to have one started.
Inline = Callable[[Exchange], Answer]


class Taken(Protocol):
    """A request that somebody answers without a task of ours."""

    def cancel(self, reason: str) -> None:
        """Nobody waits for the answer any more."""


# Hears that the peer cancels a request; what it then does is up to it: the callable cancels.
OnCancelled = Callable[[Notification, Callable[[str], object]], None]

# Takes a request over, to answer it with `Peer.answer`; or returns None to have a task started.
# What it returns is known by who it is: an id may be used again by a request that is not its own.
Take = Callable[[Exchange], Taken | None]


class Peer:
    """The other end of a connection: ask it, tell it, answer it."""

    def __init__(
        self,
        channel: Channel,
        conversation: Conversation,
        *,
        handler: Handler | None = None,
        inline: Inline | None = None,
        inline_methods: Container[str] = (),
        on_notification: Callable[[Notification], None] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        on_close: Callable[[ChannelClosed], None] | None = None,
        on_eof: Callable[["Peer"], object] | None = None,
        on_cancelled: OnCancelled | None = None,
        max_in_flight: int = MAX_IN_FLIGHT,
        input_timeout: float = 600.0,
        take: Take | None = None,
    ) -> None:
        """`inline` is asked first for `inline_methods`: what it answers needs no task. Nor does
        what `take` takes over.

        `on_eof` is told when the peer has ended its side, while work in progress may still finish.
        `on_cancelled` is asked to cancel a request that the peer does not wait for any more.
        """
        self.channel = channel
        self.conversation = conversation
        self.strays = 0
        self.malformed = 0
        self.on_offence: OnOffence | None = None  # hears of frames that are no good
        # Hears of members that an answer has besides its result: of which request, and which.
        self.on_members: Callable[[RequestId, dict[str, Raw]], None] | None = None
        self.carrier: object | None = None  # who passes messages of others on it, if anybody
        self._loop = asyncio.get_running_loop()
        self._handler = handler or _nobody
        self._inline = inline
        self._inline_methods = inline_methods
        self._take_over = take
        self._on_notification = on_notification
        self._on_error = on_error
        self._on_close = on_close
        self._on_eof = on_eof
        self._on_cancelled = on_cancelled
        self._max_in_flight = max_in_flight
        self._input_timeout = input_timeout
        self._asks_people = conversation.role is Role.CLIENT
        self._direction = (
            Direction.CLIENT_TO_SERVER
            if conversation.role is Role.SERVER
            else Direction.SERVER_TO_CLIENT
        )
        self._deadlines: Deadlines[RequestId] = Deadlines(self._loop)
        self._pending: dict[RequestId, Pending | Handed] = {}
        self._running: dict[RequestId, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()  # cancelled by the peer, cleaning up
        self._taken: dict[RequestId, Taken] = {}
        self._behind = 0  # requests that must not be overtaken
        # Writes a request that is only passed on, where the channel can do so and ids are numbers.
        self._send_request: Callable[[Any, str, Any], None] | None = None
        if conversation.numbers:
            self._send_request = getattr(channel, "send_request", None)
        self._members: dict[RequestId, dict[str, Raw]] = {}  # that answers of ours will have
        self._wanting = 0  # requests of ours that wait until the channel is not congested
        self._none_taken: asyncio.Future[None] | None = None  # somebody waits for that
        # Cancelled by the peer, but nobody has passed that on; the last ones.
        self._let_go_of: deque[Taken] = deque(maxlen=MAX_IN_FLIGHT)
        self._queued: deque[Exchange] = deque()
        self._queued_bytes = 0
        self._owner: asyncio.Task[None] | None = None
        self._end: ChannelClosed | None = None
        self._closing: asyncio.Task[None] | None = None
        self._heard = False  # one valid message, ever
        self._garbage = (0, 0, "")  # lines, bytes and the first line before that

    # Life

    def start(self) -> None:
        """Begin to read. Once."""
        assert self._owner is None
        self._owner = self._loop.create_task(self._own())

    @property
    def connected(self) -> bool:
        return self._end is None and self._owner is not None

    @property
    def end(self) -> ChannelClosed | None:
        """Why the connection is over, once it is."""
        return self._end

    async def wait_closed(self) -> ChannelClosed:
        """Wait until the connection is over and cleaned up."""
        assert self._owner is not None
        await asyncio.wait((self._owner,))
        assert self._end is not None
        return self._end

    async def close(self, reason: str = "") -> None:
        """End the connection in bounded time; `reason` is what those hear who wait for an answer.

        By any task, more than once, also by a handler of ours.
        """
        self.conversation.closing()
        self._over(ChannelClosed(reason))
        if self._owner is None:
            await self.channel.close()
            return
        current = asyncio.current_task()
        for task in self._running.values():
            if task is not current:
                task.cancel()
        self._end_leaving(current)
        self._drop_taken()
        await self.channel.close()
        if current not in {self._owner, *self._running.values(), *self._leaving}:
            await asyncio.wait((self._owner,))

    async def _own(self) -> None:
        end = ChannelClosed()
        try:
            await self.channel.run(self._deliver)
            if self._on_eof is not None:
                self._on_eof(self)
            if self.conversation.role is Role.SERVER and self._end is None:
                while await self._got_on(EOF_GRACE):
                    pass
        except ChannelClosed as exc:
            end = exc
        except Exception as exc:
            log.exception("the connection failed")
            self._report(exc)
            end = ChannelClosed(str(exc))
        finally:
            self._over(end)
            self._queued.clear()
            self._queued_bytes = 0
            for task in self._running.values():
                task.cancel()
            self._end_leaving(None)
            self._drop_taken()
            await self._finish_work(CANCEL_GRACE)
            self._running.clear()
            await self.channel.close()
            self._deadlines.close()
            if self._on_close is not None and self._end is not None:
                try:
                    self._on_close(self._end)
                except Exception:
                    log.exception("on_close failed")

    async def _got_on(self, seconds: float) -> bool:
        """Give work in progress some time; whether there is more of it, and some of it got done.

        Whoever pipes many requests into a server wants all of their answers.
        """
        owed, before = self.conversation.owed, self._under_way()
        await self._finish_work(seconds)
        left = self._under_way()
        got_on = self.conversation.owed < owed or not before <= left  # answered, or read as well
        return bool(left) and got_on and self._end is None

    def _under_way(self) -> set[object]:
        return {*self._running.values(), *self._taken.values(), *self._leaving}

    async def _finish_work(self, seconds: float) -> None:
        deadline = self._loop.time() + seconds
        while (left := deadline - self._loop.time()) > 0:
            # One that was cancelled before its first step is done, but never left the table.
            working = {t for t in (*self._running.values(), *self._leaving) if not t.done()}
            if not working and not self._taken:
                return
            if self._taken:
                self._none_taken = self._loop.create_future()
                await asyncio.wait({*working, self._none_taken}, timeout=left)
            else:
                await asyncio.wait(working, timeout=left)

    def _end_leaving(self, current: asyncio.Task[None] | None) -> None:
        """Those too whose cancellation was kept from them."""
        for task in self._leaving:
            if task is not current and not task.cancelling():
                task.cancel()

    def _drop_taken(self) -> None:
        taken, self._taken = self._taken, {}
        for one in (*taken.values(), *self._let_go_of):
            one.cancel("the client has gone")
        self._let_go_of.clear()

    def _over(self, end: ChannelClosed) -> None:
        """Every request of ours fails now, once, with the reason."""
        if self._end is not None:
            return
        self._end = end
        self.conversation.closed()
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            again = type(end)(
                end.reason,
                delivered=end.delivered,
                exit_code=end.exit_code,
                stderr=end.stderr,
            )
            again.__cause__ = end.__cause__
            waiting.settle(again)

    # Asking

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
        if self._end is not None or self._owner is None:
            raise self._not_connected()
        channel, loop = self.channel, self._loop
        started = loop.time()
        if channel.congested:
            await self._wait_writable(timeout, method)
        track = on_progress is not None or method == "tools/call"
        message = self.conversation.request(method, params, track=track, reserved=reserved)
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
        overhear: Overhear | None = None,
        on_sent: Callable[[RequestId], None] | None = None,
        reply_to: RequestId | None = None,
    ) -> Raw:
        """Pass somebody else's request on: like `request`, but the params are made by `fill`, for
        the id that it gets, and progress is handed over as it came.
        """
        if self._end is not None or self._owner is None:
            raise self._not_connected()
        started = self._loop.time()
        if self.channel.congested:
            await self._wait_writable(timeout, method)
        message = self.conversation.forwarded(method, fill, extra)
        future: asyncio.Future[Raw] = self._loop.create_future()
        gives_up_at = started + max_total if max_total else 0.0
        pending = Pending(method, future, timeout, gives_up_at, None, overhear)
        return await self._outcome(message, pending, on_sent, reply_to)

    def hand_on(
        self,
        method: str,
        fill: Fill,
        done: Callable[[Raw | Exception], None],
        *,
        extra: dict[str, Raw] | None = None,
        timeout: float = 0.0,
        max_total: float = 0.0,
        overhear: Overhear | None = None,
    ) -> RequestId:
        """The same for those who need no task: `done` gets what `forward` returns or raises, once.

        Raises:
            ChannelClosed: it certainly was not sent.
            LocalProtocolError: this may not be asked now.
        """
        if self._end is not None or self._owner is None:
            raise self._not_connected()
        channel, conversation = self.channel, self.conversation
        if len(self._pending) > FEW:
            channel.join_writes()
        write = self._send_request
        request_id: RequestId = 0
        try:
            if write is not None and type(fill) is Raw and extra is None:
                request_id = conversation.begin(method)
                write(request_id, method, fill)
            else:
                message = conversation.forwarded(method, fill, extra)
                request_id = message.id
                channel.send(message)
        except ChannelClosed:
            conversation.abandon(request_id, "not sent")
            raise
        gives_up_at = self._loop.time() + max_total if max_total else 0.0
        self._pending[request_id] = Handed(method, timeout, gives_up_at, done, overhear)
        if timeout:
            self._deadlines.add(request_id, timeout, self._expired)
        return request_id

    def give_up(self, request_id: RequestId, reason: str) -> None:
        """Nobody waits for a request of ours that was handed on: the peer is told."""
        self._abandon(request_id, reason)

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
        channel = self.channel
        if len(self._pending) > FEW:
            channel.join_writes()
        try:
            channel.send(message, reply_to=reply_to)
        except ChannelClosed as exc:
            self.conversation.abandon(message.id, "not sent")
            raise await self._last_words(exc) from exc
        if on_sent is not None:
            on_sent(message.id)
        self._pending[message.id] = pending
        if pending.timeout:
            self._deadlines.add(message.id, pending.timeout, self._expired)
        try:
            return await pending.future
        except asyncio.CancelledError as exc:
            reason = exc.args[0] if exc.args else None
            said = reason if isinstance(reason, str) else "cancelled by the caller"
            self._abandon(message.id, said, quiet=quiet)
            raise

    def settle(self, request_id: RequestId, result: Raw) -> None:
        """Take something else for the answer to a request of ours."""
        self._take(self.conversation.receive(Success(request_id, result)))

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
        if self._end is not None or self._owner is None:
            raise self._not_connected()
        if self.channel.congested:
            await self._wait_writable(timeout, method)
        self.channel.send(self.conversation.notification(method, params))

    async def _last_words(self, error: ChannelClosed) -> ChannelClosed:
        """Writing fails as soon as the other end is gone; why it went is known a moment later."""
        owner = self._owner
        if owner is not None and asyncio.current_task() not in (owner, *self._running.values()):
            await asyncio.wait((owner,), timeout=LAST_WORDS)
        return error if self._end is None else self._not_connected()

    def _not_connected(self) -> ChannelClosed:
        error = ChannelClosed(delivered=False)
        if self._end is not None:
            error = ChannelClosed(
                self._end.reason,
                delivered=False,
                exit_code=self._end.exit_code,
                stderr=self._end.stderr,
            )
        error.args = (str(error.args[0]).replace("Transport closed", "Transport not connected", 1),)
        return error

    async def _wait_writable(self, timeout: float, method: str) -> None:
        self._wanting += 1
        try:
            async with asyncio.timeout(timeout or None):
                await self.channel.drain()
        except TimeoutError as exc:
            error = RequestTimeout(timeout, method)
            error.delivered = False
            raise error from exc
        finally:
            self._wanting -= 1

    @property
    def congested(self) -> bool:
        """Whether a request of ours would have to wait; also behind those that do so already."""
        return self._wanting > 0 or self.channel.congested

    def _expired(self, request_id: RequestId) -> None:
        pending = self._pending.get(request_id)
        if pending is not None:
            what = "SSE response" if self._comes_as_events(request_id) else "Request"
            self._abandon(request_id, "timeout")
            pending.settle(RequestTimeout(pending.timeout, pending.method, what=what))

    def _comes_as_events(self, request_id: RequestId) -> bool:
        """Only channels over HTTP can tell; it makes a difference to whoever reads the error."""
        tell = getattr(self.channel, "waits_for_events", None)
        return tell is not None and bool(tell(request_id))

    @property
    def heard_for(self) -> RequestId | None:
        """While something is delivered: the request of ours whose own stream brought it.

        Only channels over HTTP can tell; elsewhere all share one stream.
        """
        return getattr(self.channel, "heard_for", None)

    def _abandon(self, request_id: RequestId, reason: str, *, quiet: bool = False) -> None:
        """Nobody waits any more: forget it here, and tell the peer without waiting for that."""
        self._pending.pop(request_id, None)
        self._deadlines.remove(request_id)
        notification = self.conversation.abandon(request_id, reason)
        if notification is not None and self._end is None and not quiet:
            self._give_notice(notification, request_id)

    def _give_notice(self, note: Notification, request_id: RequestId) -> None:
        """Tell the peer that a request of ours needs no answer any more."""
        self._send_quietly(note)

    # Hearing

    def _deliver(self, item: Incoming) -> None:
        """Take in what the channel read. Returns at once, never raises, awaits nobody's code."""
        if self._end is not None:
            return  # over; the channel only has not noticed yet
        try:
            if type(item) is Request:
                self._heard = True
                event = self.conversation.asked(item)
                if type(event) is Asked:
                    self._asked(event)
                else:
                    self._take(event)
                    if isinstance(event, Refused) and self.on_offence is not None:
                        self._offended("refused", encode(item), event.answer.message)
            elif type(item) is Success and self.conversation.answered(item.id):
                self._heard = True
                self._answered(item)
            elif isinstance(item, _MESSAGES):
                self._heard = True
                self._take(self.conversation.receive(item))
            elif isinstance(item, Batch):
                self._batch(item)
            elif isinstance(item, Lost):
                self._lost(item)
            else:
                self._unreadable(item)
        except Exception as exc:
            log.exception("a message could not be handled")
            self._report(exc)

    def _take(self, event: Event) -> None:
        if isinstance(event, Answered):
            self._answered(event.message)
            return
        match event:
            case Progressed():
                self._progressed(event)
            case Told(message):
                if self._on_notification is not None:
                    self._on_notification(message)
            case Cancelled():
                self._cancelled(event)
            case Refused(answer):
                log.warning("refused a request: %s", answer.message)
                self._send_quietly(answer)
            case Stray(message, why):
                self.strays += 1
                log.debug("stray message: %s", why)
                if self.on_offence is not None:
                    self._offended("nobody asked", encode(message), why)

    def _answered(self, message: Success | Failure) -> None:
        request_id = message.id
        pending = None if request_id is None else self._pending.pop(request_id, None)
        if pending is None or request_id is None:
            return
        self._deadlines.remove(request_id)
        if message.extra is not None and self.on_members is not None:
            self.on_members(request_id, message.extra)
        if isinstance(message, Success):
            pending.settle(message.result)
        else:
            pending.settle(RpcError(message.code, message.message, raw=bytes(message.error)))

    def _lost(self, lost: Lost) -> None:
        pending = self._pending.get(lost.request_id)
        if pending is not None:
            self._abandon(lost.request_id, "lost", quiet=True)
            pending.settle(lost.error)

    def _progressed(self, event: Progressed) -> None:
        pending = self._pending.get(event.request_id)
        if pending is None:
            return
        if pending.gives_up_at and pending.timeout:
            left = min(pending.timeout, pending.gives_up_at - self._loop.time())
            self._deadlines.add(event.request_id, max(left, 0.0), self._expired)
        pending.progressed(event.message)

    def _unreadable(self, error: RemoteProtocolError) -> None:
        self.malformed += 1
        if self.on_offence is not None:
            self._offended("no message", error.frame, str(error), error.size)
        self._settle_unreadable(error)
        if self.conversation.role is Role.SERVER:
            self._refuse_unreadable(error)
            return
        from ..observe.redact import redact  # rarely needed, and slow to load

        log.warning("skipped a frame that is no message: %.100r", redact(error.excerpt))
        self._report(error)
        if not self._heard:
            self._count_garbage(error)

    def _settle_unreadable(self, error: RemoteProtocolError) -> None:
        """An answer that cannot be read, or is too long: whoever waits for it need not go on."""
        answers = error.answers
        if answers is None and self.conversation.role is Role.CLIENT:
            answers = error.request_id
        pending = None if answers is None else self._pending.get(answers)
        if pending is not None and answers is not None:
            self._abandon(answers, "unreadable answer", quiet=True)
            pending.settle(error)

    def _offended(
        self,
        kind: Literal["no message", "nobody asked", "refused"],
        frame: bytes,
        why: str,
        size: int = 0,
    ) -> None:
        assert self.on_offence is not None
        self.on_offence(
            Offence(
                frame=frame,
                size=size or len(frame),
                kind=kind,
                why=why,
                direction=self._direction,
                transport=self.channel.context,
            )
        )

    def _refuse_unreadable(self, error: RemoteProtocolError) -> None:
        log.warning("refused a frame that is no message: %s", error)
        absent = error.request_id is None and not self.conversation.null_error_id
        self._send_quietly(failure(error.request_id, error.code, str(error), absent_id=absent))

    def _count_garbage(self, error: RemoteProtocolError) -> None:
        """A program that only chats on its stdout is no server: say so instead of waiting."""
        lines, size, first = self._garbage
        self._garbage = lines, size, _ = lines + 1, size + error.size, first or error.excerpt
        if lines >= GARBAGE_LINES or size >= GARBAGE_BYTES:
            end = ChannelClosed(
                "it writes something else than MCP to its output, beginning with "
                f"{self._garbage[2]!r}"
            )
            self._over(end)
            self._closing = self._loop.create_task(self.channel.close())

    def _batch(self, batch: Batch) -> None:
        if not self.conversation.accepts_batches:
            error = RemoteProtocolError(
                "Batches are not part of the agreed protocol version", code=INVALID_REQUEST
            )
            self._unreadable(error)
            return
        for item in batch.items:
            self._deliver(item)

    # Answering

    def _asked(self, event: Asked) -> None:
        exchange = Exchange(
            event.message, event.caller, event.head, self._direction, self.channel.context, self
        )
        if self._asks_people:
            exchange.related = self.heard_for
        request_id = event.message.id
        if event.message.method in self._inline_methods and self._inline is not None:
            try:
                answer = self._inline(exchange)
            except RpcError as exc:
                self._fail(request_id, exc)
                return
            if answer is not None:
                if self.conversation.settled(request_id):
                    self.channel.send_success(request_id, answer)
                return
        if self._is_full:
            self._queue(exchange)
            return
        if self._take_over is not None and not self._behind:
            taken = self._take_over(exchange)
            if taken is not None:
                self._taken[request_id] = taken
                return
        self._begin(exchange, request_id)

    def answer(self, taken: Taken, request_id: RequestId, outcome: bytes | Raw | RpcError) -> None:
        """Answer a request that was taken over. First outcome wins."""
        if self._taken.get(request_id) is not taken:
            return  # cancelled, and perhaps the id has another owner by now
        del self._taken[request_id]
        if isinstance(outcome, RpcError):
            self._fail(request_id, outcome)
        elif self.conversation.settled(request_id):
            if len(self._taken) > FEW:
                self.channel.join_writes()
            try:
                if self._members:
                    self._succeed(request_id, outcome)
                else:
                    self.channel.send_success(request_id, outcome)
            except ChannelClosed:
                pass  # the owner hears of it from the channel
        if self._queued or self._none_taken is not None:
            self._one_taken_less()

    def give_back(self, taken: Taken, exchange: Exchange) -> None:
        """A request that was taken over needs a task after all."""
        if self._taken.get(exchange.request_id) is taken and self._end is None:
            del self._taken[exchange.request_id]
            self._begin(exchange, exchange.request_id)
            self._tell_none_taken()

    def _one_taken_less(self) -> None:
        if self._queued:
            self._next()
        self._tell_none_taken()

    def _tell_none_taken(self) -> None:
        waiter = self._none_taken
        if waiter is not None and not self._taken and not waiter.done():
            waiter.set_result(None)

    def stay_behind(self) -> None:
        """A request is on its way only in the next turn of the loop: those that come until then
        have a task too, so that they stay behind it."""
        self._behind += 1
        self._loop.call_soon(self._went_ahead)

    def _went_ahead(self) -> None:
        self._behind -= 1

    def _begin(self, exchange: Exchange, request_id: RequestId) -> None:
        if self._take_over is not None:
            self.stay_behind()
        task = self._running[request_id] = self._loop.create_task(self._serve(exchange, request_id))
        if self._asks_people and is_question(exchange.message.method):
            self._stand_still(task)

    def _stand_still(self, task: asyncio.Task[None]) -> None:
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

        task.add_done_callback(answered)

    def _go_on(self) -> None:
        shift = self._deadlines.resume()
        for pending in self._pending.values():
            if pending.gives_up_at:
                pending.gives_up_at += shift

    @property
    def _is_full(self) -> bool:
        return len(self._running) + len(self._leaving) + len(self._taken) >= self._max_in_flight

    def _queue(self, exchange: Exchange) -> None:
        size = _size(exchange)
        if len(self._queued) >= MAX_QUEUED or self._queued_bytes + size > MAX_QUEUED_BYTES:
            self.conversation.settled(exchange.request_id)
            why = f"Too many requests: {self._max_in_flight} are under way. Try again later"
            log.warning("refused %s: too many requests are under way", exchange.method)
            self._send_quietly(failure(exchange.request_id, INTERNAL_ERROR, why))
            return
        self._queued.append(exchange)
        self._queued_bytes += size

    async def _serve(self, exchange: Exchange, request_id: RequestId) -> None:
        """Handle one request. First outcome wins and is delivered once."""
        try:
            answer = await self._handler(exchange)
            if not self._is_let_go and self.conversation.settled(request_id):
                channel = self.channel
                if len(self._running) > FEW:
                    channel.join_writes()
                self._succeed(request_id, b"{}" if answer is None else answer)
                if channel.congested:
                    await channel.drain()
        except ChannelClosed as exc:
            if self._end is None and not self._is_let_go:  # else it was this connection
                self._fail(request_id, refusal_of(exchange, exc))
        except Exception as exc:
            refusal = refusal_of(exchange, exc)
            if not self._is_let_go:
                self._fail(request_id, refusal)
        finally:
            # Nearly always it is ours; after a cancellation the id may belong to another by now.
            if not self._leaving or self._running.get(request_id) is asyncio.current_task():
                del self._running[request_id]
            if self._queued:
                self._next()

    @property
    def _is_let_go(self) -> bool:
        """Whether the peer has cancelled the request of this task: its id may be another's now."""
        return bool(self._leaving) and asyncio.current_task() in self._leaving

    def _next(self) -> None:
        """Begin with one that waits, if there is room for it now."""
        if self._queued and self._end is None and not self._is_full:
            exchange = self._queued.popleft()
            self._queued_bytes -= _size(exchange)
            self._begin(exchange, exchange.request_id)

    def add_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Our answer to a request, when there is one, has these members besides."""
        if self.conversation.owes(request_id):
            self._members[request_id] = members

    def _succeed(self, request_id: RequestId, result: bytes | Raw) -> None:
        if self._members and (members := self._members.pop(request_id, None)) is not None:
            self.channel.send(Success(request_id, Raw(bytes(result)), members))
        else:
            self.channel.send_success(request_id, result)

    def _fail(self, request_id: RequestId, error: RpcError) -> None:
        if self.conversation.settled(request_id):
            members = self._members.pop(request_id, None)
            if error.raw is not None:
                raw = Raw(error.raw)
                answer = Failure(request_id, error.code, error.message, raw, members)
            else:
                answer = failure(request_id, error.code, error.message, error.data)
            self._send_quietly(answer)

    def _cancelled(self, event: Cancelled) -> None:
        cancel = self._let_go(event.request_id)
        if self._on_cancelled is None:
            cancel(event.reason)
        else:
            self._on_cancelled(event.message, cancel)
        self.channel.finish(event.request_id)

    def _let_go(self, request_id: RequestId) -> Callable[[str], object]:
        """A request of the peer is not its business any more; returns what ends it."""
        self._members.pop(request_id, None)
        task = self._running.pop(request_id, None)
        if task is not None:
            # A stateless peer may use the id again at once, while this one still cleans up.
            self._leaving.add(task)
            task.add_done_callback(self._left)
            return lambda why: task.cancel(why or None)  # whoever passed it on tells why
        taken = self._taken.pop(request_id, None)
        if taken is None:
            self._drop_queued(request_id)
            return lambda _: None

        self._let_go_of.append(taken)
        self._one_taken_less()

        def cancel(why: str) -> None:
            if taken in self._let_go_of:
                self._let_go_of.remove(taken)
            taken.cancel(why or "cancelled by the caller")

        return cancel

    def _left(self, task: asyncio.Task[None]) -> None:
        self._leaving.discard(task)
        self._next()  # if it never began, it could not see to that itself

    def _drop_queued(self, request_id: RequestId) -> None:
        for exchange in self._queued:
            if exchange.request_id == request_id:
                self._queued.remove(exchange)
                self._queued_bytes -= _size(exchange)
                return

    def _send_quietly(self, message: Any) -> None:
        try:
            self.channel.send(message)
        except ChannelClosed:
            pass  # the owner hears of it from the channel

    def _report(self, error: Exception) -> None:
        if self._on_error is not None:
            try:
                self._on_error(error)
            except Exception:
                log.exception("on_error failed")

    # Edge: the way back to the caller of an exchange

    @property
    def session(self) -> SessionContext:
        known, named = self.conversation.session, getattr(self.channel, "id", None)
        if known.session_id is not None or not isinstance(named, str):
            return known
        return replace(known, session_id=named)  # a session over HTTP has an id of its own

    @property
    def log_level(self) -> str | None:
        return self.conversation.log_level

    @log_level.setter
    def log_level(self, level: str | None) -> None:
        self.conversation.log_level = level

    async def tell(self, exchange: Exchange, notification: Notification) -> None:
        channel = self.channel
        request_id = exchange.request_id
        if request_id not in self._running and request_id not in self._taken:
            return  # it has its outcome; nothing may follow that
        channel.send(notification, reply_to=exchange.request_id)
        if channel.congested:
            await channel.drain()

    def hang_up(self, exchange: Exchange) -> None:
        """Let go of the stream that waits for this exchange, if it has one of its own."""
        self.channel.detach(exchange.request_id)

    async def ask(
        self, exchange: Exchange, method: str, params: dict[str, Any] | Raw | None
    ) -> Raw:
        return await self.request(
            method, params, timeout=self._input_timeout, reply_to=exchange.request_id
        )


def refusal_of(exchange: Exchange, error: Exception) -> RpcError:
    """What the peer is answered if its request failed so. What it need not know is logged."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, LocalProtocolError | RemoteProtocolError):
        return RpcError(error.code, str(error))
    if isinstance(error, ChannelClosed):  # another connection, one that the handler used
        log.warning("%s failed: %s", exchange.method, error)
    else:
        about = {ABOUT: exchange.message.params}
        log.error("%s failed", exchange.method, exc_info=error, extra=about)
    return RpcError(INTERNAL_ERROR, "Internal error")


def _size(exchange: Exchange) -> int:
    params = exchange.message.params
    return 0 if isinstance(params, UnsetType) else len(memoryview(params))


async def _nobody(exchange: Exchange) -> Answer:
    raise RpcError(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
