"""A server over HTTP as a channel: each message leaves in a POST of its own.

What comes back, on whichever stream, is delivered as it comes; a POST that fails is a request
lost, not a channel. Both eras: with a session that is renewed when the server has forgotten it,
or without any.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, Unpack

from msgspec import Raw

from ....errors import (
    ChannelClosed,
    FairleadError,
    HttpError,
    RemoteProtocolError,
    RequestTimeout,
    TransportError,
)
from ....protocol.caller import read_params_head
from ....protocol.envelope import TransportContext
from ....wire import (
    MAX_MESSAGE,
    Batch,
    Decoder,
    Failure,
    Message,
    Notification,
    Request,
    RequestId,
    Success,
    encode,
    encode_success,
)
from ....wire.error_codes import INVALID_REQUEST
from ....wire.sse import Event, EventParser, EventTooLong
from ...channel import Deliver, RequestLost, SharedStream
from .concurrency_limit import ConcurrencyLimit
from .fragments import EVENTS, FragmentAssembler, OnFragment
from .http1.http_client import DoorOptions, HttpClient, HttpResponse
from .http1.url import EndpointUrl
from .listen_stream import ListenStream, read_events
from .post_response_stream import PendingPost, ResponseReader
from .request_headers import ParamHeadersOf, RequestHeaders
from .response_messages import (
    cancelled_id,
    cancelled_notification,
    failure_in,
    is_method_not_found,
    session_id_of,
    with_request_id,
)
from .session_renewal import WORTH_REMEMBERING, RestorableState, SessionRenewal, agreed_version
from .session_teardown import SessionTeardown

__all__ = ["HttpChannel", "OnAuthError"]

POOL_SIZE = 10  # calls at once
NOTIFY_TIMEOUT = 30.0  # seconds for a message without an answer to be accepted
ORDER = 5.0  # seconds that requests wait for a notification that was sent before them
LISTEN_GRACE = 1.0  # seconds that the first requests wait for the listening stream
LINGER = 1.0  # seconds that notifications and answers may take to leave when we close

log = logging.getLogger("fairlead.transport")

_Headers: TypeAlias = Mapping[str, str] | None
# Learns of a 401 or 403, and may give headers with which the request is repeated once.
OnAuthError: TypeAlias = Callable[[HttpError], _Headers | Awaitable[_Headers]]

# Requests that are not counted as calls: they last, or must not wait for any.
_UNCOUNTED = frozenset(("subscriptions/listen", "server/discover", "ping"))


class HttpChannel(SharedStream):
    """The client's end of Streamable HTTP."""

    correlates_calls = True  # each request has a stream of its own, see `heard_for`

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        listen: bool = True,
        pool_size: int = POOL_SIZE,
        limit: int = MAX_MESSAGE,
        **tls: Unpack[DoorOptions],
    ) -> None:
        """No traffic yet. `listen`: hear what a server of the handshake era says unasked.

        Raises:
            ConfigError: the URL or the file of certificates cannot be used.
        """
        address = EndpointUrl.parse(url)
        self.context = TransportContext(transport_type="http", peer_address=address.url)
        self.listen = listen
        self.on_error: Callable[[Exception], None] | None = None
        self.on_auth_error: OnAuthError | None = None
        self.on_fragment: OnFragment | None = None
        self.on_renewed: Callable[[], None] | None = None
        # While something is delivered: the request whose own stream brought it.
        self.related_request_id: RequestId | None = None
        self._door = HttpClient(address, **tls)
        self._request_headers = RequestHeaders(headers, address.authorization)
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._decode = Decoder().decode
        self._deliver: Deliver | None = None
        self._early: list[Any] = []  # heard before anybody ran us
        self._posted: dict[RequestId, PendingPost] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # all of them
        self._last_words: set[asyncio.Task[None]] = set()  # those that may finish when we close
        self._slots = ConcurrencyLimit(pool_size)
        self._answers = ResponseReader(
            self._door,
            self._request_headers.listening,
            hear=self._hear,
            hear_event=self._heard_event,
            release=self._release,
            listening=lambda: self._listening is not None and not self._listening.done(),
            limit=limit,
        )
        self._gate: asyncio.Task[None] | None = None  # what later requests wait for
        self._stateless_version: str | None = None
        self._teardown = SessionTeardown(self._door, self._request_headers.ending)
        self._renewal = SessionRenewal(
            self._door,
            self._request_headers,
            self._teardown,
            post=self._post,
            take=lambda event: self._heard_event(event, None),
            over=self._session_renewed,
            limit=limit,
        )
        self._listener: ListenStream | None = None
        self._listening: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[ChannelClosed | None] = self._loop.create_future()
        self._closing: asyncio.Task[None] | None = None

    # Channel

    async def run(self, deliver: Deliver) -> None:
        self._deliver = deliver
        early, self._early = self._early, []
        for item in early:
            deliver(item)
        end = await asyncio.shield(self._ended)
        if end is not None:
            raise end

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        if self._closing is not None:
            raise ChannelClosed(delivered=False)
        if isinstance(message, Request):
            self._send_request(message)
        elif isinstance(message, Notification):
            self._send_notification(message)
        else:
            self._start(self._tell(encode(message)), last_word=True)

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        if self._closing is not None:
            raise ChannelClosed(delivered=False)
        self._start(self._tell(encode_success(request_id, result)), last_word=True)

    @property
    def congested(self) -> bool:
        return self._slots.congested

    async def drain(self) -> None:
        await self._slots.drain()

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    # For those who know that this is HTTP

    @property
    def session_id(self) -> str | None:
        """The session that the server has given us, if it has."""
        return self._request_headers.session_id

    @property
    def param_headers_of(self) -> ParamHeadersOf | None:
        """Says which arguments of a tool travel in headers as well (stateless era)."""
        return self._request_headers.param_headers_of

    @param_headers_of.setter
    def param_headers_of(self, marks: ParamHeadersOf | None) -> None:
        self._request_headers.param_headers_of = marks

    def configure(self, headers: Mapping[str, str]) -> None:
        """Headers for everything that is sent from now on, besides or instead of those before."""
        self._request_headers.configure(headers)

    def add_headers(self, request_id: RequestId, headers: Mapping[str, str]) -> None:
        """Headers of one request; call it in the turn in which it was sent."""
        if (posted := self._posted.get(request_id)) is not None:
            posted.extra = headers

    def waits_for_events(self, request_id: RequestId) -> bool:
        """Whether a request has been accepted, and its answer comes as a stream of events."""
        posted = self._posted.get(request_id)
        return posted is not None and posted.streaming

    async def tell(self, notification: Notification, *, timeout: float | None = None) -> None:
        """Send a notification and wait until the server has accepted it.

        Raises:
            HttpError: it refuses it.
            RequestTimeout: it does not answer in time.
            ConnectFailed, ChannelClosed: it cannot be reached, or the connection broke.
        """
        if self._closing is not None:
            raise ChannelClosed(delivered=False)
        seconds = NOTIFY_TIMEOUT if timeout is None else timeout
        await self._post_in_time(encode(notification), seconds, notification.method)

    async def start_listening(self, seconds: float = LISTEN_GRACE) -> None:
        """Open the listening stream, and wait a little until it is open or known to be missing."""
        if self._closing is not None:
            raise ChannelClosed(delivered=False)
        if self._listening is None or self._listening.done():
            self._begin_listening()
        assert self._listener is not None
        try:
            async with asyncio.timeout(seconds):
                await self._listener.settled.wait()
        except TimeoutError:
            log.debug("the listening stream takes its time")

    # Sending

    def _send_request(self, message: Request) -> None:
        posted = PendingPost(message, read_params_head(message.params))
        if posted.version is not None:
            self._stateless_version = posted.version
        elif message.method == "initialize":
            self._renewal.remembered = RestorableState(message)
            self._request_headers.opened(None, None)
        self._posted[message.id] = posted
        posted.task = self._start(self._ask(posted))

    def _send_notification(self, message: Notification) -> None:
        if message.method == "notifications/cancelled":
            self._cancel(message)
            return
        first, self._gate = self._gate, None
        self._gate = self._start(self._notify(message, first), last_word=True)

    def _cancel(self, message: Notification) -> None:
        """Nobody waits for a request any more: its POST ends, and the handshake era is told."""
        request_id = cancelled_id(message)
        posted = None if request_id is None else self._posted.pop(request_id, None)
        if posted is not None and posted.task is not None:
            posted.task.cancel()
            # The server would take its questions back on the stream that we leave.
            for question in posted.questions:
                self._loop.call_soon(self._hand_over, cancelled_notification(question))
        told = (
            posted.sent and not posted.stateless
            if posted
            else self._request_headers.version is not None
        )
        if told:
            self._start(self._tell(encode(message)), last_word=True)

    async def _notify(self, message: Notification, first: "asyncio.Task[None] | None") -> None:
        """Notifications stay in order, and `initialized` is followed by listening."""
        await _after(first)
        try:
            await self._post_in_time(encode(message), NOTIFY_TIMEOUT, message.method)
        except FairleadError as exc:
            self._report(exc)
            return
        if (
            message.method == "notifications/initialized"
            and self._request_headers.version is not None
        ):
            self._renewal.remembered.initialized = True
            if self.listen and self._closing is None:
                await self.start_listening()

    async def _tell(self, body: bytes) -> None:
        """Send what nobody waits for."""
        try:
            await self._post_in_time(body, NOTIFY_TIMEOUT)
        except FairleadError as exc:
            self._report(exc)

    async def _post_in_time(self, body: bytes, seconds: float, method: str = "") -> None:
        try:
            async with asyncio.timeout(seconds or None):
                await self._post(body)
        except TimeoutError as exc:
            error = RequestTimeout(seconds, method)
            error.args = (f"Notify timeout after {seconds * 1000:.0f}ms",)
            raise error from exc

    async def _post(self, body: bytes) -> None:
        """POST something that has no answer. Raises what is wrong if it was not accepted."""
        heading = self._request_headers
        for again in (True, False):
            generation = heading.generation
            headers = heading.told(self._stateless_version)
            reply = await self._door.open("POST", headers, body)
            if reply.ok:
                # A server that answers with a stream has something to say all the same.
                if reply.streams:
                    parser = EventParser(self._limit)
                    await read_events(reply, parser, lambda event: self._heard_event(event, None))
                else:
                    await reply.read(self._limit)
                return
            error, _ = await reply.refusal()
            if not again or not await self._authorized(error, generation):
                raise error

    # Asking

    async def _ask(self, posted: PendingPost) -> None:
        """One request, from its POST to its answer, wherever that comes from."""
        try:
            if self._gate is not None or self._renewal.task is not None:
                await self._pass_gate()
            if posted.message.method not in _UNCOUNTED:
                await self._slots.take(len(posted.body))
                posted.counted = True
            await self._exchange(posted)
        except FairleadError as exc:
            self._lose(posted, exc)
        except Exception as exc:
            log.exception("a request failed")
            self._lose(posted, TransportError(f"{type(exc).__name__}: {exc}"))
        finally:
            self._release(posted)

    async def _pass_gate(self) -> None:
        gate = self._gate
        await _after(gate)
        if self._gate is gate:
            self._gate = None
        if self._renewal.task is not None:
            await asyncio.wait((self._renewal.task,))

    def _release(self, posted: PendingPost) -> None:
        if posted.counted:
            posted.counted = False
            self._slots.release()

    async def _exchange(self, posted: PendingPost) -> None:
        """POST the request and take in the answer; again after a new session or a new token."""
        heading, message = self._request_headers, posted.message
        may_renew = may_authorize = True
        while True:
            session = None if posted.stateless else heading.session_id
            generation = heading.generation
            headers = heading.asked(message, posted.head, posted.extra)
            posted.sent = True
            opens = message.method == "initialize" and not posted.stateless
            reply: HttpResponse
            if opens:
                reply = await self._teardown.open(headers, posted.body)
            else:
                reply = await self._door.open("POST", headers, posted.body)
            if reply.ok:
                if opens:
                    heading.opened(session_id_of(reply), None)
                await self._answers.take(posted, reply)
                return
            error, body = await reply.refusal()
            failure = failure_in(body)
            if session and reply.status == 404 and not is_method_not_found(failure, message):
                if not may_renew:
                    raise error
                may_renew = False
                await self._renewal.renewed(session, error)
                continue
            if may_authorize and await self._authorized(error, generation):
                may_authorize = False
                continue
            # Who has to authorize first needs the headers, whatever the body says.
            if failure is None or error.status == 401 or error.www_authenticate:
                raise error
            self._hear(with_request_id(failure, message.id))
            return

    # Hearing

    def _heard_event(self, event: Event | EventTooLong, posted: PendingPost | None) -> None:
        """One event of a stream that belongs to a request, or to none.

        Raises:
            RemoteProtocolError: it cannot be read, and belongs to a request without an answer.
        """
        try:
            if isinstance(event, EventTooLong):
                why = f"An event of {event.size} bytes is over the limit of {self._limit}"
                raise RemoteProtocolError(why, code=INVALID_REQUEST)
            if not event.data:
                return  # it only moved the last event id
            if event.event == "message":
                message = self._decode(event.data)
                if posted is not None:
                    if isinstance(message, Request):
                        posted.questions.append(message.id)
                    self.related_request_id = posted.message.id
                self._hear(message)
            elif posted is not None and event.event in EVENTS:
                self._fragment(event, posted)
        except RemoteProtocolError as exc:
            if posted is not None and not posted.answered:
                raise
            if isinstance(event, Event):
                exc.excerpt, exc.frame = repr(event.data[:200]), event.data
                exc.size = len(event.data)
            self._hand_over(exc)
        finally:
            self.related_request_id = None

    def _fragment(self, event: Event, posted: PendingPost) -> None:
        if posted.fragments is None:
            posted.fragments = FragmentAssembler(posted.message.id, self._limit)
        answer = posted.fragments.take(event, self._told_fragment)
        if answer is not None:
            self._hear(answer)

    def _told_fragment(self, request_id: RequestId, content: list[Any]) -> None:
        if self.on_fragment is not None:
            try:
                self.on_fragment(request_id, content)
            except Exception:
                log.exception("on_fragment failed")

    def _hear(self, message: Message | Batch) -> None:
        if isinstance(message, Success | Failure):
            self._settle(message)
        elif isinstance(message, Batch):
            for item in message.items:
                if isinstance(item, Success | Failure):
                    self._settle(item)
        self._hand_over(message)

    def _settle(self, answer: Success | Failure) -> None:
        if answer.id is None or (posted := self._posted.pop(answer.id, None)) is None:
            return
        posted.answered = True
        if isinstance(answer, Failure):
            return
        method = posted.message.method
        if method == "initialize" and not posted.stateless:
            if (version := agreed_version(answer.result)) is not None:
                self._request_headers.agreed(version)
        elif method in WORTH_REMEMBERING:
            self._renewal.remembered.succeeded(posted.message)

    def _hand_over(self, item: Any) -> None:
        if self._deliver is not None:
            self._deliver(item)
        else:
            self._early.append(item)

    def _lose(self, posted: PendingPost, error: FairleadError) -> None:
        if self._posted.get(posted.message.id) is posted:
            del self._posted[posted.message.id]
            self._hand_over(RequestLost(posted.message.id, error))

    def _report(self, error: Exception) -> None:
        log.debug("%s: %s", type(error).__name__, error)
        if self.on_error is not None:
            try:
                self.on_error(error)
            except Exception:
                log.exception("on_error failed")

    # Mending

    async def _authorized(self, error: HttpError, generation: int) -> bool:
        """Whether there are other credentials now than those that were refused."""
        if error.status not in (401, 403):
            return False
        if generation != self._request_headers.generation:
            return True  # another request has renewed them meanwhile
        if self.on_auth_error is None:
            return False
        try:
            fresh = self.on_auth_error(error)
            headers = await fresh if inspect.isawaitable(fresh) else fresh
        except FairleadError:
            raise
        except Exception as exc:
            log.exception("on_auth_error failed")
            raise error from exc
        if not headers:
            return False
        self._request_headers.configure(headers)
        return True

    async def _mended(self, error: HttpError) -> bool:
        """The listening stream was refused: whether it makes sense to ask once more."""
        if error.status == 404 and self._request_headers.session_id is not None:
            await self._renewal.renewed(self._request_headers.session_id, error)
            return True
        return await self._authorized(error, self._request_headers.generation)

    def _session_renewed(self, problem: Exception | None) -> None:
        if problem is not None:
            self._report(problem)
            return
        self._listen_anew()
        if self.on_renewed is not None:
            try:
                self.on_renewed()
            except Exception:
                log.exception("on_renewed failed")

    # Life

    def _begin_listening(self) -> None:
        self._listener = ListenStream(
            self._door,
            self._request_headers.listening,
            lambda event: self._heard_event(event, None),
            refused=self._mended,
            on_error=self._report,
            limit=self._limit,
        )
        self._listening = self._start(self._follow(self._listener))

    def _listen_anew(self) -> None:
        """The listening stream belonged to the old session; if it was refused, it knows."""
        if self._listening is None or self._listening.done() or self._closing is not None:
            return
        if self._listener is not None and not self._listener.mending:
            self._listening.cancel()
            self._begin_listening()

    async def _follow(self, listener: ListenStream) -> None:
        try:
            await listener.run()
        except ChannelClosed as exc:
            if not self._ended.done():
                self._ended.set_result(exc)
        except FairleadError as exc:
            self._report(exc)

    def _start(self, work: Any, *, last_word: bool = False) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if last_word:
            self._last_words.add(task)
            task.add_done_callback(self._last_words.discard)
        return task

    async def _close(self) -> None:
        try:
            if self._listening is not None:
                self._listening.cancel()
            if self._renewal.task is not None:
                self._tasks.add(self._renewal.task)
            for task in self._tasks - self._last_words:
                task.cancel()
            if self._last_words:
                await asyncio.wait(self._last_words, timeout=LINGER)
            if left := set(self._tasks):
                for task in left:
                    task.cancel()
                await asyncio.wait(left, timeout=LINGER)
            self._posted.clear()
            self._slots.close()
            self._teardown.end(self._request_headers.session_id)
            await self._teardown.wait()
        finally:
            await self._door.close()
            if not self._ended.done():
                self._ended.set_result(None)


async def _after(task: "asyncio.Task[None] | None") -> None:
    if task is not None and not task.done():
        await asyncio.wait((task,), timeout=ORDER)
