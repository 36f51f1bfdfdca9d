"""Channel to a server over HTTP, which sends every message in a separate POST.

Messages are delivered as they arrive, on any stream. If a POST fails, its request fails too, but
the channel stays open. The channel serves both eras: with a session, which is renewed when the
server no longer recognizes it, or without a session.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Unpack

from msgspec import Raw

from ....errors import ChannelClosed, HttpError
from ....protocol.envelope import TransportContext
from ....wire import (
    MAX_MESSAGE,
    Message,
    Notification,
    Request,
    RequestId,
    Success,
    encode,
    encode_success,
)
from ...background_tasks import BackgroundTasks
from ...channel import Deliver, SharedStream
from ...login_waits import LoginWaits
from .fragments import OnFragment
from .http1.http_client import HttpClient, HttpClientOptions
from .http1.url import EndpointUrl
from .listen_stream import ListenStream, SessionListener
from .message_receiver import MessageReceiver
from .outgoing_queue import NOTIFY_TIMEOUT, ConcurrencyLimit, OutgoingQueue
from .post_response_stream import PendingPost, ResponseReader
from .request_headers import OnAuthError, ParamHeadersOf, RequestHeaders
from .session_renewal import SessionRenewal
from .session_teardown import SessionTeardown

__all__ = ["HttpChannel"]

POOL_SIZE = 10  # maximum number of concurrent calls
LISTEN_GRACE = 1.0  # seconds for which the first requests wait for the listening stream
LINGER = 1.0  # seconds for queued notifications and responses to be sent on close

log = logging.getLogger("fairlead.transport")


class HttpChannel(SharedStream):
    """Client end of Streamable HTTP."""

    carries_headers = True
    correlates_calls = True

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        listen: bool = True,
        pool_size: int = POOL_SIZE,
        limit: int = MAX_MESSAGE,
        **tls: Unpack[HttpClientOptions],
    ) -> None:
        """Create the channel without sending anything.

        If `listen` is true, the channel opens a stream for messages that a handshake-era server
        sends independently of requests.

        Raises:
            ConfigError: The URL or `ca_file` cannot be used.
        """
        address = EndpointUrl.parse(url)
        self.context = TransportContext(transport_type="http", peer_address=address.url)
        self.listen = listen
        self.on_error: Callable[[Exception], None] | None = None
        self.on_fragment: OnFragment | None = None
        self.on_renewed: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._tasks = BackgroundTasks()  # all tasks of the channel
        # tasks that `close` waits for instead of cancelling them
        self._last: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[ChannelClosed | None] = self._loop.create_future()
        self._closing: asyncio.Task[None] | None = None
        self._door = HttpClient(address, **tls)
        self._request_headers = RequestHeaders(headers, address.authorization)
        self._slots = ConcurrencyLimit(pool_size)
        self._receiver = MessageReceiver(
            succeeded=self._succeeded,
            on_fragment=self._report_fragment,
            limit=limit,
        )
        self._listener = SessionListener(
            lambda: ListenStream(
                self._door,
                self._request_headers.listening,
                self._receiver.receive_event,
                refused=self._mend,
                on_error=self._report,
                limit=limit,
            ),
            start=self._start,
            lost=self._end,
            on_error=self._report,
        )
        self._teardown = SessionTeardown(self._door, self._request_headers.ending)
        self._renewal = SessionRenewal(
            # The hooks below are methods and lambdas because these objects refer to each other.
            self._door,
            self._request_headers,
            self._teardown,
            post=self._post,
            take=self._receiver.receive_event,
            over=self._session_renewed,
            limit=limit,
        )
        self._queue = OutgoingQueue(
            self._door,
            self._receiver,
            self._request_headers,
            self._renewal,
            self._teardown,
            self._slots,
            responses=ResponseReader(
                self._door,
                self._request_headers.listening,
                hear=self._receiver.receive,
                hear_event=self._receiver.receive_event,
                release=self._slots.release_post,
                listening=lambda: self._listener.active,
                limit=limit,
            ),
            start=self._start,
            initialized=self._initialized,
            on_error=self._report,
            limit=limit,
        )

    # Methods of Channel

    async def run(self, deliver: Deliver) -> None:
        self._receiver.begin(deliver)
        # Shielded: cancelling `run` must not cancel the future that `_end` completes.
        end = await asyncio.shield(self._ended)
        if end is not None:
            raise end

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        if self._closing is not None:
            raise ChannelClosed(delivered=False)
        if isinstance(message, Request):
            self._queue.send_request(message)
        elif isinstance(message, Notification):
            self._queue.send_notification(message)
        else:
            self._queue.send_body(encode(message))

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        if self._closing is not None:
            raise ChannelClosed(delivered=False)
        self._queue.send_body(encode_success(request_id, result))

    @property
    def congested(self) -> bool:
        return self._slots.congested

    async def drain(self) -> None:
        await self._slots.drain()

    async def close(self) -> None:
        if self._closing is None:
            # A separate task, so that cancelling one caller of `close` does not stop the shutdown.
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    # Additions for HTTP

    @property
    def logins(self) -> LoginWaits | None:  # type: ignore[override]
        return self._door.logins

    @property
    def session_id(self) -> str | None:
        """The session id that the server assigned, if any."""
        return self._request_headers.session_id

    @property
    def executed_initialize(self) -> bool:  # type: ignore[override]
        return self._queue.executed_initialize

    @property
    def related_request_id(self) -> RequestId | None:  # type: ignore[override]
        """Id of the request whose stream carried the message that is being delivered."""
        return self._receiver.related_request_id

    @property
    def on_auth_error(self) -> OnAuthError | None:
        """Hook for 401 and 403.

        The request is repeated once with the headers that the hook returns.
        """
        return self._request_headers.on_auth_error

    @on_auth_error.setter
    def on_auth_error(self, hook: OnAuthError | None) -> None:
        self._request_headers.on_auth_error = hook

    @property
    def param_headers_of(self) -> ParamHeadersOf | None:
        """Hook that returns which arguments of a tool are mirrored in headers (stateless era)."""
        return self._request_headers.param_headers_of

    @param_headers_of.setter
    def param_headers_of(self, marks: ParamHeadersOf | None) -> None:
        self._request_headers.param_headers_of = marks

    def add_headers(self, request_id: RequestId, headers: Mapping[str, str]) -> None:
        """Set headers for one request; must be called before the loop runs its task."""
        if (posted := self._receiver.pending.get(request_id)) is not None:
            posted.extra = headers

    def waits_for_events(self, request_id: RequestId) -> bool:
        """Return True if the response to a request is an event stream that is still open."""
        posted = self._receiver.pending.get(request_id)
        return posted is not None and posted.streaming

    async def tell(self, notification: Notification, *, timeout: float | None = None) -> None:
        """Send a notification and wait until the server has accepted it.

        Raises:
            HttpError: The server refused the notification.
            RequestTimeout: The server did not respond in time.
            ConnectFailed: The server cannot be reached.
            ChannelClosed: The connection broke, or the channel is closed.
        """
        if self._closing is not None:
            raise ChannelClosed(delivered=False)
        seconds = NOTIFY_TIMEOUT if timeout is None else timeout
        await self._queue.post_within(encode(notification), seconds, notification.method)

    async def start_listening(self, seconds: float = LISTEN_GRACE) -> None:
        """Open the listening stream, and wait up to `seconds` until it is open or has failed."""
        if self._closing is not None:
            raise ChannelClosed(delivered=False)
        await self._listener.open(seconds)

    # Hooks

    def _succeeded(self, posted: PendingPost, answer: Success) -> None:
        self._renewal.succeeded(posted, answer)

    async def _post(self, body: bytes) -> None:
        await self._queue.post(body)

    async def _initialized(self) -> None:
        if self.listen and self._closing is None:
            await self.start_listening()

    async def _mend(self, error: HttpError) -> bool:
        """Renew session or credentials after a refused listening stream; return True on success."""
        if error.status == 404 and self._request_headers.session_id is not None:
            await self._renewal.renewed(self._request_headers.session_id, error)
            return True
        return await self._request_headers.refreshed(error, self._request_headers.generation)

    def _session_renewed(self, problem: Exception | None) -> None:
        if problem is not None:
            self._report(problem)
            return
        if self._closing is None:
            self._listener.reopen()
        _call_hook("on_renewed", self.on_renewed)

    def _report_fragment(self, request_id: RequestId, content: list[Any]) -> None:
        _call_hook("on_fragment", self.on_fragment, request_id, content)

    def _report(self, error: Exception) -> None:
        log.debug("%s: %s", type(error).__name__, error)
        _call_hook("on_error", self.on_error, error)

    # Tasks and shutdown

    def _start(
        self, work: Coroutine[Any, Any, None], *, last: bool = False
    ) -> "asyncio.Task[None]":
        task = self._tasks.start(work)
        if last:
            self._last.add(task)
            task.add_done_callback(self._last.discard)
        return task

    def _end(self, error: ChannelClosed | None) -> None:
        if not self._ended.done():
            self._ended.set_result(error)

    async def _close(self) -> None:
        try:
            # The renewal starts its own task, because several requests share it.
            if self._renewal.task is not None:
                self._tasks.add(self._renewal.task)
            for task in self._tasks - self._last:
                task.cancel()
            if self._last:
                await asyncio.wait(self._last, timeout=LINGER)
            if left := set(self._tasks):
                for task in left:
                    task.cancel()
                await asyncio.wait(left, timeout=LINGER)
            # Requests without a response are reported by the peer, which sees the channel end.
            self._receiver.pending.clear()
            self._slots.close()
            # The session ends last, so that pending messages still belong to it.
            self._teardown.end(self._request_headers.session_id)
            await self._teardown.wait()
        finally:
            await self._door.close()
            self._end(None)


def _call_hook(name: str, hook: Callable[..., None] | None, *args: object) -> None:
    """Call a hook, if it is set, and log its exceptions, because hooks are user code."""
    if hook is not None:
        try:
            hook(*args)
        except Exception:
            log.exception("%s failed", name)
