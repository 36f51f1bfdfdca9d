"""A new session when the server has forgotten ours, which nobody above notices (handshake era)."""

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
from .http1.http_client import HttpClient, HttpResponse
from .listen_stream import OnEvent
from .post_response_stream import PendingPost
from .request_headers import RequestHeaders
from .response_messages import session_id_of
from .session_teardown import SessionTeardown

__all__ = ["RestorableState", "SessionRenewal"]

TIME_LIMIT = 30.0  # seconds for a new session

_RESTORED = frozenset(("logging/setLevel", "resources/subscribe", "resources/unsubscribe"))

log = logging.getLogger("fairlead.transport")


class _Uri(Struct):
    uri: str | None = None


class _Agreed(Struct):
    version: str | None = field(default=None, name="protocolVersion")


class RestorableState:
    """What we asked for and got in this session, as far as a new one would not know it."""

    def __init__(self, initialize: Request | None = None) -> None:
        self.initialize = initialize
        self.initialized = False
        self._level: Params | None = None
        self._subscribed: dict[str, Params] = {}
        self._count = 0

    def succeeded(self, request: Request) -> None:
        """A request of ours went well."""
        if request.method == "logging/setLevel":
            self._level = _kept(request.params)
        elif (uri := read_json(request.params, _Uri, _Uri()).uri) is None:
            return
        elif request.method == "resources/subscribe":
            self._subscribed[uri] = _kept(request.params)
        elif request.method == "resources/unsubscribe":
            self._subscribed.pop(uri, None)

    def introduction(self) -> Request | None:
        """Our `initialize` again, under an id that no conversation uses."""
        if self.initialize is None:
            return None
        return self._request("initialize", self.initialize.params)

    def rest(self) -> Iterator[Request | Notification]:
        """What follows the answer to it."""
        if self.initialized:
            yield Notification("notifications/initialized")
        if self._level is not None:
            yield self._request("logging/setLevel", self._level)
        for params in tuple(self._subscribed.values()):
            yield self._request("resources/subscribe", params)

    def _request(self, method: str, params: Params) -> Request:
        self._count += 1
        return Request(f"renewal-{self._count}", method, params)


class SessionRenewal:
    """Opens a new session, once for all who notice that the old one is gone."""

    def __init__(
        self,
        door: HttpClient,
        heading: RequestHeaders,
        endings: SessionTeardown,
        *,
        post: Callable[[bytes], Awaitable[None]],
        take: OnEvent,
        over: Callable[[Exception | None], None],
        limit: int = MAX_MESSAGE,
    ) -> None:
        """`take` gets what comes besides the answers, `over` hears how each renewal ended."""
        self._state = RestorableState()
        self.task: asyncio.Task[None] | None = None  # while one is under way
        self._door = door
        self._request_headers = heading
        self._teardown = endings
        self._post = post
        self._take = take
        self._over = over
        self._limit = limit

    def opening(self, initialize: Request) -> None:
        """A client opens a session, and leaves the one before."""
        self._state = RestorableState(initialize)
        self._request_headers.opened(None, None)

    def initialized(self) -> None:
        """The client has said `notifications/initialized`."""
        self._state.initialized = True

    def succeeded(self, posted: PendingPost, answer: Success) -> None:
        """Keep what a request has changed in the session."""
        method = posted.message.method
        if method == "initialize" and not posted.stateless:
            if (version := _agreed_version(answer.result)) is not None:
                self._request_headers.agreed(version)
        elif method in _RESTORED:
            self._state.succeeded(posted.message)

    async def renewed(self, stale: str, error: HttpError) -> None:
        """Have a session that is not that one. Raises `error` if the server gives none."""
        if self.task is None:
            if self._request_headers.session_id != stale:
                return  # another request has seen to it
            self.task = asyncio.get_running_loop().create_task(self._renew())
            self.task.add_done_callback(self._ended)
        renewing = self.task
        await asyncio.wait((renewing,))
        if renewing.cancelled():
            raise ChannelClosed(delivered=False)
        if (cause := renewing.exception()) is not None:
            raise error from cause

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self.task = None
        if not task.cancelled():
            problem = task.exception()
            self._over(problem if isinstance(problem, Exception) else None)

    async def _renew(self) -> None:
        introduction = self._state.introduction()
        if introduction is None:
            raise ChannelClosed("the server has forgotten a session that we did not open")
        log.debug("the server has forgotten our session; opening a new one")
        async with asyncio.timeout(TIME_LIMIT):
            await self._begin(introduction)
            for message in self._state.rest():
                if isinstance(message, Request):
                    await self._ask(message)
                else:
                    await self._post(encode(message))

    async def _begin(self, introduction: Request) -> None:
        """Be in a new session; one that came to nothing is ended."""
        headers = self._request_headers.asked(introduction, read_params_head(introduction.params))
        reply = await self._teardown.open(headers, encode(introduction))
        given = session_id_of(reply)
        try:
            answer = await self._answer(introduction, reply)
            if not isinstance(answer, Success):
                raise TransportError("The server refused a new session")
        except BaseException:
            self._teardown.end(given)
            raise
        self._request_headers.opened(given, _agreed_version(answer.result))

    async def _ask(self, request: Request) -> None:
        """Ask something that nobody above has asked."""
        headers = self._request_headers.asked(request, read_params_head(request.params))
        await self._answer(request, await self._door.open("POST", headers, encode(request)))

    async def _answer(self, request: Request, reply: HttpResponse) -> Success | Failure | None:
        aside = _Aside(request.id)
        try:
            if not reply.ok:
                raise (await reply.refusal())[0]
            if not reply.streams:
                aside.take(Event(await reply.read(self._limit)))
            parser = EventParser(self._limit)
            while aside.answer is None and reply.streams and (chunk := await reply.chunk()):
                for event in parser.feed(chunk):
                    if not aside.take(event):
                        self._take(event)
        finally:
            reply.close()
        return aside.answer


class _Aside:
    """Waits for one answer."""

    def __init__(self, request_id: RequestId) -> None:
        self.answer: Success | Failure | None = None
        self._request_id = request_id

    def take(self, event: Event | EventTooLong) -> bool:
        if isinstance(event, EventTooLong) or event.event != "message" or not event.data:
            return False
        message = Decoder().decode(event.data)
        if isinstance(message, Success | Failure) and message.id in (self._request_id, None):
            self.answer = message
            return True
        return False


def _agreed_version(result: Raw) -> str | None:
    """The revision that an answer to `initialize` names."""
    return read_json(result, _Agreed, _Agreed()).version


def _kept(params: Params) -> Params:
    return params if isinstance(params, UnsetType) else params.copy()
