"""HTTP requests and responses over ASGI."""

import asyncio
import contextlib
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ....errors import ChannelClosed
from ....limits import BODY_RATE, BODY_TIMEOUT
from ....protocol.envelope import TransportContext
from ... import timeouts

if TYPE_CHECKING:
    from .token_access import RequestRefusal

__all__ = [
    "BODY_TIMED",
    "CLOSE",
    "JSON",
    "STOPPED",
    "STREAM",
    "TEXT",
    "WHOLE_STREAM",
    "AsgiCall",
    "BodyTimeout",
    "BodyTooLarge",
    "HeaderMap",
    "Headers",
    "Heartbeat",
    "HttpCall",
    "Receive",
    "Scope",
    "Send",
    "has_body",
    "has_json",
    "send_later",
    "send_stopped",
]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
STOPPED = "the server was stopped before it completed the request"
PATIENCE = 0.02  # seconds after which a request is watched for a disconnect

# Proxies must neither cache, transform nor buffer events (`X-Accel-Buffering` is nginx's).
STREAM = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
WHOLE_STREAM = STREAM[0][1], STREAM[1:]  # content type and headers of a complete stream


# key in the scope, set by a server that has its own timeout for bodies
BODY_TIMED = "fairlead.body_timed"
CLOSE = ((b"connection", b"close"),)  # for responses that are sent before the complete body is read

Heartbeat: TypeAlias = Callable[[], Coroutine[Any, Any, None]]  # writes a heartbeat to the client


def has_json(headers: Mapping[bytes, bytes]) -> bool:
    """Return True if the body is declared as JSON.

    A web page of any origin can send text/plain, forms and bodies without a type. For every other
    type a browser sends a CORS preflight first, which only listed origins pass.
    """
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return kind == JSON or (kind.startswith(b"application/") and kind.endswith(b"+json"))


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    """Return True unless the headers declare an empty body."""
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


class BodyTooLarge(Exception):
    """The body exceeds the size limit."""


class BodyTimeout(Exception):
    """The body did not arrive in time."""


class HeaderMap(Mapping[str, str]):
    """Headers of a request, decoded on access."""

    __slots__ = ("_headers",)

    def __init__(self, headers: dict[bytes, bytes]) -> None:
        self._headers = headers

    def __getitem__(self, name: str) -> str:
        return self._headers[name.lower().encode("latin-1")].decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def starting_with(self, prefix: bytes) -> dict[str, str]:
        """Return the headers whose lower-case names start with `prefix`.

        Only these are decoded. Filtering `items()` took 15 % of a gateway's time for a call.
        """
        return {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in self._headers.items()
            if name.startswith(prefix)
        }


class HttpCall(Protocol):
    """Interface to the HTTP server that the endpoint needs; ASGI is one implementation."""

    gone: bool

    @property
    def headers(self) -> dict[bytes, bytes]: ...

    @property
    def context(self) -> TransportContext: ...

    def answer_now(self, status: int, body: bytes) -> Coroutine[Any, Any, None] | None:
        """Send the response immediately, or return a coroutine that sends it."""

    async def answer(
        self, status: int, body: bytes = b"", kind: bytes = JSON, headers: Headers = ()
    ) -> None: ...

    async def open_stream(self) -> None: ...

    async def write(self, chunk: bytes) -> None: ...

    async def end(self) -> None: ...

    def watch(self, left: Callable[[], object], beat: Heartbeat, every: float) -> None: ...

    def unwatch(self) -> None: ...


async def send_later(call: HttpCall, why: str) -> None:
    """Respond with 503, so that the client tries again in a few seconds."""
    await _send_text(call, 503, why, [(b"retry-after", b"5")])


async def send_stopped(call: HttpCall) -> None:
    """Respond to a request that was not completed before the server stopped.

    The handler may have been running, so the status must not be 503: clients repeat such requests.
    """
    await _send_text(call, 500, STOPPED, ())


async def _send_text(call: HttpCall, status: int, message: str, headers: Headers) -> None:
    body = f"{status} {HTTPStatus(status).phrase}: {message}\n".encode()
    await call.answer(status, body, TEXT, headers)


class AsgiCall:
    """One HTTP request over ASGI.

    ASGI reports a disconnect only through `receive`, so a task waits for it; fast requests are
    answered before that task starts.
    """

    public_base: str | None = None  # base URL for clients, if it is known

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        body_timeout: float = BODY_TIMEOUT.value,
        on_refused: "Callable[[RequestRefusal], None] | None" = None,
    ) -> None:
        """`body_timeout` is the time limit for a body in seconds; it grows with the size of the
        body. `on_refused` is called if the request is refused by its headers or its token.
        """
        self.on_refused = on_refused
        self.scope = scope
        self.body_timeout = 0.0 if BODY_TIMED in scope else body_timeout
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        # A dict keeps only the last of repeated headers. Routers compare its length with the scope.
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.server: tuple[str, int | None] | None = scope.get("server")
        client = scope.get("client")
        self.client: str | None = client[0] if client else None
        self.gone = False
        self.started = False  # True once the response has begun
        self.extra: tuple[tuple[bytes, bytes], ...] = ()  # headers added to every response
        self._receive = receive
        self._send = send
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None

    def url_of(self, path: str) -> str:
        """Return the URL of a path for display. It contains the `Host` of the request only if the
        base URL for clients is not known.
        """
        if self.public_base is not None:
            return self.public_base + path
        host = self.headers.get(b"host", b"localhost").decode("latin-1")
        root = self.scope.get("root_path", "")
        return f"{self.scope.get('scheme', 'http')}://{host}{root}{path}"

    async def body(self, limit: int) -> bytes:
        """Return the complete body.

        Raises:
            BodyTooLarge: The body exceeds the limit; the rest of it is not read.
            BodyTimeout: The body did not arrive in time; the rest of it is not read.
            ChannelClosed: The client disconnected before it had sent the complete body.
        """
        length = self.headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > limit):
            raise BodyTooLarge
        if not self.body_timeout:
            return await self._body(limit, None)
        try:
            async with timeouts.timeout(self.body_timeout) as clock:
                return await self._body(limit, clock)
        except TimeoutError:
            BODY_TIMEOUT.hit()
            raise BodyTimeout from None

    async def _body(self, limit: int, clock: asyncio.Timeout | None) -> bytes:
        began = 0.0 if clock is None else asyncio.get_running_loop().time()
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ChannelClosed("the client disconnected")
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise BodyTooLarge
            if not message.get("more_body"):
                return b"".join((*chunks, chunk)) if chunks else chunk
            chunks.append(chunk)
            # Extended with every chunk, so that a large body may take longer than a small one.
            if clock is not None:
                clock.reschedule(began + self.body_timeout + size / BODY_RATE.value)

    @property
    def context(self) -> TransportContext:
        """Headers, path and peer address of the request."""
        return TransportContext(
            transport_type="http",
            headers=HeaderMap(self.headers),
            path=self.path,
            peer_address=self.client,
        )

    def answer_now(self, status: int, body: bytes) -> Coroutine[Any, Any, None]:
        return self.answer(status, body)

    async def answer(
        self, status: int, body: bytes = b"", kind: bytes = JSON, headers: Headers = ()
    ) -> None:
        """Send a complete response."""
        self.started = True
        fields = [(b"content-length", b"%d" % len(body)), *headers, *self.extra]
        if body:
            fields.append((b"content-type", kind))
        await self._send({"type": "http.response.start", "status": status, "headers": fields})
        await self._send({"type": "http.response.body", "body": body})

    async def reject_slow_body(self) -> None:
        """Respond to a request whose body did not arrive in time."""
        await self.send_text(408, "the body did not arrive in time", CLOSE)

    async def send_later(self, why: str) -> None:
        """Respond with 503, so that the client tries again in a few seconds."""
        await send_later(self, why)

    async def send_text(self, status: int, message: str, headers: Headers = ()) -> None:
        """Send a response with a plain-text message."""
        await _send_text(self, status, message, headers)

    async def open_stream(self) -> None:
        """Start a response of server-sent events."""
        self.started = True
        fields = [*STREAM, *self.extra]
        await self._send({"type": "http.response.start", "status": 200, "headers": fields})

    async def write(self, chunk: bytes) -> None:
        """Write a part of the stream; wait while the client reads slowly."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        # A handler that writes in a tight loop must let the loop detect a disconnect.
        await asyncio.sleep(0)

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    async def give_up(self) -> None:
        """End the response early, because the server is shutting down."""
        if self.started:
            await self.end()
        else:
            await send_stopped(self)

    def watch(self, left: Callable[[], object], beat: Heartbeat, every: float) -> None:
        """Call `left` if the client disconnects, and `beat` every `every` seconds.

        Call `unwatch` before the last part of the response is written.
        """
        loop = asyncio.get_running_loop()
        # Delayed, because most requests are answered sooner and then cost no task.
        self._timer = loop.call_later(PATIENCE, self._attend, left, beat, every)

    def _attend(self, left: Callable[[], object], beat: Heartbeat, every: float) -> None:
        loop = asyncio.get_running_loop()
        self._watcher = loop.create_task(self._until_gone(left))
        if every:
            self._timer = loop.call_later(every, self._beat, beat, every)

    def _beat(self, beat: Heartbeat, every: float) -> None:
        loop = asyncio.get_running_loop()
        # With a slow reader the previous heartbeat may still be waiting; one is enough.
        if self._beating is None or self._beating.done():
            self._beating = loop.create_task(_quietly(beat))
        self._timer = loop.call_later(every, self._beat, beat, every)

    async def _until_gone(self, left: Callable[[], object]) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while (await self._receive())["type"] != "http.disconnect":
                pass
            self.gone = True
            left()

    def unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in (self._watcher, self._beating):
            if task is not None:
                task.cancel()


async def _quietly(beat: Heartbeat) -> None:
    # A heartbeat may fail because the client has disconnected; `_until_gone` handles that.
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await beat()
