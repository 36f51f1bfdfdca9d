"""Renewal of a session that the server no longer recognizes, without an error for callers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from msgspec import Raw, Struct, UnsetType, field

from ....errors import ChannelClosed, HttpError, TransportError
from ....protocol.caller import read_params_head
from ....wire import (
    MAX_MESSAGE,
    Decoder,
    Failure,
    Notification,
    Params,
    Request,
    RequestId,
    Success,
    encode,
)
from ....wire.json import read_json
from ....wire.sse import Event, EventParser, EventTooLong
from ...login_waits import LoginTimeout
from .http1.http_client import HttpClient, HttpResponse
from .listen_stream import OnEvent
from .post_response_stream import PendingPost
from .request_headers import RequestHeaders
from .response_messages import session_id_of
from .session_teardown import SessionTeardown

__all__ = ["RestorableState", "SessionRenewal"]

TIME_LIMIT = 30.0  # seconds to open a new session

_RESTORED = frozenset(("logging/setLevel", "resources/subscribe", "resources/unsubscribe"))

log = logging.getLogger("fairlead.transport")


class _Uri(Struct):
    uri: str | None = None


class _Agreed(Struct):
    version: str | None = field(default=None, name="protocolVersion")


class RestorableState:
    """State of a session that must be restored in a new session."""

    def __init__(self, initialize: Request | None = None) -> None:
        self.initialize = initialize
        self.initialized = False
        self._level: Params | None = None
        self._subscribed: dict[str, Params] = {}
        self._count = 0

    def succeeded(self, request: Request) -> None:
        """Record a successful request that changed the session."""
        if request.method == "logging/setLevel":
            self._level = _kept(request.params)
        elif (uri := read_json(request.params, _Uri, _Uri()).uri) is None:
            return
        elif request.method == "resources/subscribe":
            self._subscribed[uri] = _kept(request.params)
        elif request.method == "resources/unsubscribe":
            self._subscribed.pop(uri, None)

    def introduction(self) -> Request | None:
        """Return the original `initialize` with an id that no other request uses."""
        if self.initialize is None:
            return None
        return self._request("initialize", self.initialize.params)

    def rest(self) -> Iterator[Request | Notification]:
        """Yield the messages that follow the response to `initialize`."""
        if self.initialized:
            yield Notification("notifications/initialized")
        if self._level is not None:
            yield self._request("logging/setLevel", self._level)
        # A copy, because subscriptions may change between two messages.
        for params in tuple(self._subscribed.values()):
            yield self._request("resources/subscribe", params)

    def _request(self, method: str, params: Params) -> Request:
        self._count += 1
        return Request(f"renewal-{self._count}", method, params)


class SessionRenewal(Struct, eq=False):
    """Renewal of a session that the server no longer recognizes, shared by concurrent requests.

    `take` receives events that are not responses to the renewal. `over` is called after a
    renewal, with its error or None.
    """

    door: HttpClient
    headers: RequestHeaders
    teardown: SessionTeardown
    post: Callable[[bytes], Awaitable[None]]
    take: OnEvent
    over: Callable[[Exception | None], None]
    limit: int = MAX_MESSAGE
    _state: RestorableState = field(default_factory=RestorableState)
    task: asyncio.Task[None] | None = None  # the renewal in progress

    def opening(self, initialize: Request) -> None:
        """Forget the current session, because `initialize` opens a new one."""
        self._state = RestorableState(initialize)
        self.headers.opened(None, None)

    def initialized(self) -> None:
        """Record that the client has sent `notifications/initialized`."""
        self._state.initialized = True

    def succeeded(self, posted: PendingPost, answer: Success) -> None:
        """Record the changes that a request made to the session."""
        method = posted.message.method
        if method == "initialize" and not posted.stateless:
            if (version := _agreed_version(answer.result)) is not None:
                self.headers.opened(self.headers.session_id, version)
        elif method in _RESTORED:
            self._state.succeeded(posted.message)

    async def renewed(self, stale: str, error: HttpError) -> None:
        """Renew the session, unless another request has already replaced `stale`.

        Raises:
            HttpError: The renewal failed; `error` is raised again.
            ChannelClosed: The channel was closed in the meantime.
        """
        if self.task is None:
            if self.headers.session_id != stale:
                return  # another request has already renewed the session
            self.task = asyncio.get_running_loop().create_task(self._renew())
            self.task.add_done_callback(self._ended)
        renewing = self.task
        # `wait` instead of `await`: cancelling one request must not cancel the shared renewal.
        await asyncio.wait((renewing,))
        if renewing.cancelled():
            raise ChannelClosed(delivered=False)
        if (cause := renewing.exception()) is not None:
            raise error from cause

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self.task = None
        if not task.cancelled():
            problem = task.exception()
            self.over(problem if isinstance(problem, Exception) else None)

    async def _renew(self) -> None:
        introduction = self._state.introduction()
        if introduction is None:
            raise ChannelClosed("the session is unknown to the server: call `initialize` first")
        log.debug("the server no longer recognizes the session; opening a new one")
        async with LoginTimeout(TIME_LIMIT, self.door.logins):
            await self._begin(introduction)
            for message in self._state.rest():
                if isinstance(message, Request):
                    await self._ask(message)
                else:
                    await self.post(encode(message))

    async def _begin(self, introduction: Request) -> None:
        """Open a new session; terminate it if the handshake fails."""
        headers = self.headers.asked(introduction, read_params_head(introduction.params))
        reply = await self.teardown.open(headers, encode(introduction))
        given = session_id_of(reply)
        try:
            answer = await self._answer(introduction, reply)
            if not isinstance(answer, Success):
                raise TransportError(_no_session(answer))
        except BaseException:
            self.teardown.end(given)
            raise
        self.headers.opened(given, _agreed_version(answer.result))

    async def _ask(self, request: Request) -> None:
        """Send a request of the renewal itself and read its response."""
        headers = self.headers.asked(request, read_params_head(request.params))
        await self._answer(request, await self.door.open("POST", headers, encode(request)))

    async def _answer(self, request: Request, reply: HttpResponse) -> Success | Failure | None:
        answer: Success | Failure | None = None
        try:
            if not reply.ok:
                raise (await reply.refusal())[0]
            if not reply.streams:
                return _response_in(Event(await reply.read(self.limit)), request.id)
            parser = EventParser(self.limit)
            while answer is None and (chunk := await reply.chunk()):
                for event in parser.feed(chunk):
                    if (found := _response_in(event, request.id)) is None:
                        self.take(event)
                    answer = found or answer
        finally:
            reply.close()
        return answer


def _response_in(event: Event | EventTooLong, request_id: RequestId) -> Success | Failure | None:
    """Return the response to a request, if it is in this event."""
    if isinstance(event, EventTooLong) or event.event != "message" or not event.data:
        return None
    message = Decoder().decode(event.data)
    if isinstance(message, Success | Failure) and message.id in (request_id, None):
        return message
    return None


def _no_session(answer: Failure | None) -> str:
    if answer is None:
        return "the server did not respond to `initialize` for a new session"
    return f"the server refused to open a new session: {answer.message}"


def _agreed_version(result: Raw) -> str | None:
    """Return the protocol version in a result of `initialize`."""
    return read_json(result, _Agreed, _Agreed()).version


def _kept(params: Params) -> Params:
    return params if isinstance(params, UnsetType) else params.copy()
