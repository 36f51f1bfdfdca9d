"""One HTTP request and its answer, as an ASGI server hands them to us."""

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
from typing import Any, Protocol, TypeAlias

from ....errors import ChannelClosed
from ....limits import BODY_RATE, BODY_TIMEOUT
from ....protocol.envelope import TransportContext

__all__ = [
    "BODY_TIMED",
    "CLOSE",
    "JSON",
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
]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
PATIENCE = 0.02  # seconds a request may take before we look whether its client is still there

STREAM = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
WHOLE_STREAM = STREAM[0][1], STREAM[1:]  # kind and headers of one that is complete already


BODY_TIMED = "fairlead.body_timed"  # in the scope of a server that sees to slow bodies itself
CLOSE = ((b"connection", b"close"),)  # the rest of the body is not waited for

Heartbeat: TypeAlias = Callable[[], Coroutine[Any, Any, None]]  # shows that we are still there


def has_json(headers: Mapping[bytes, bytes]) -> bool:
    """Return True if the body is declared as JSON.

    A web page of any origin can send text/plain, forms and bodies without a type. Every other type
    makes a browser ask first (a CORS preflight), and only listed origins are allowed then.
    """
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return kind == JSON or (kind.startswith(b"application/") and kind.endswith(b"+json"))


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    """Return True unless the headers say that no body follows."""
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


class BodyTooLarge(Exception):
    """The body is longer than we read."""


class BodyTimeout(Exception):
    """The body did not arrive in the time that it has."""


class HeaderMap(Mapping[str, str]):
    """The headers of a request, decoded when somebody looks."""

    __slots__ = ("_headers",)

    def __init__(self, headers: dict[bytes, bytes]) -> None:
        self._headers = headers

    def __getitem__(self, name: str) -> str:
        return self._headers[name.lower().encode("latin-1")].decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._headers)

    def __len__(self) -> int:
        return len(self._headers)


class HttpCall(Protocol):
    """What the endpoint needs of an HTTP server: ASGI is one way to have it."""

    gone: bool
    extra: tuple[tuple[bytes, bytes], ...]  # headers that every answer to this call gets

    @property
    def headers(self) -> dict[bytes, bytes]: ...

    @property
    def path(self) -> str: ...

    @property
    def server(self) -> tuple[str, int | None] | None: ...

    @property
    def client(self) -> str | None: ...

    @property
    def context(self) -> TransportContext: ...

    def answer_now(self, status: int, body: bytes) -> Coroutine[Any, Any, None] | None:
        """Answer without waiting; where that is not possible, return what has to be awaited."""

    async def answer(
        self, status: int, body: bytes = b"", kind: bytes = JSON, headers: Headers = ()
    ) -> None: ...

    async def open_stream(self, headers: Headers = ()) -> None: ...

    async def write(self, chunk: bytes) -> None: ...

    async def end(self) -> None: ...

    def watch(self, left: Callable[[], None], beat: Heartbeat, every: float) -> None: ...

    def unwatch(self) -> None: ...


class AsgiCall:
    """One HTTP request. Whether its client left can only be learnt by asking, so we ask late."""

    __slots__ = (
        "_beating",
        "_receive",
        "_send",
        "_timer",
        "_watcher",
        "body_timeout",
        "client",
        "extra",
        "gone",
        "headers",
        "method",
        "path",
        "scope",
        "server",
        "started",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        body_timeout: float = BODY_TIMEOUT.value,
    ) -> None:
        """`body_timeout` is for how many seconds a body may take, besides what its size allows."""
        self.scope = scope
        self.body_timeout = 0.0 if BODY_TIMED in scope else body_timeout
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.server: tuple[str, int | None] | None = scope.get("server")
        client = scope.get("client")
        self.client: str | None = client[0] if client else None
        self.gone = False
        self.started = False  # the answer
        self.extra: tuple[tuple[bytes, bytes], ...] = ()
        self._receive = receive
        self._send = send
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None

    async def body(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            TooLarge: it is over the limit; nothing more of it is read.
            TooSlow: it did not arrive in time; nothing more of it is read.
            ChannelClosed: the client left before it had sent all of it.
        """
        length = self.headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > limit):
            raise BodyTooLarge
        if not self.body_timeout:
            return await self._body(limit, None)
        try:
            async with asyncio.timeout(self.body_timeout) as clock:
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
                raise ChannelClosed("the client left")
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise BodyTooLarge
            if not message.get("more_body"):
                return b"".join((*chunks, chunk)) if chunks else chunk
            chunks.append(chunk)
            if clock is not None:
                clock.reschedule(began + self.body_timeout + size / BODY_RATE.value)

    @property
    def context(self) -> TransportContext:
        """How the request travelled."""
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
        """Send the whole answer."""
        self.started = True
        fields = [(b"content-length", b"%d" % len(body)), *headers, *self.extra]
        if body:
            fields.append((b"content-type", kind))
        await self._send({"type": "http.response.start", "status": status, "headers": fields})
        await self._send({"type": "http.response.body", "body": body})

    async def reject_slow_body(self) -> None:
        """Answer a request whose body did not arrive in time."""
        await self.send_text(408, "the body did not arrive in time", CLOSE)

    async def send_text(self, status: int, message: str, headers: Headers = ()) -> None:
        """Answer with a sentence for people."""
        body = f"{status} {HTTPStatus(status).phrase}: {message}\n".encode()
        await self.answer(status, body, TEXT, headers)

    async def open_stream(self, headers: Headers = ()) -> None:
        """Begin an answer of server-sent events."""
        self.started = True
        fields = [*STREAM, *headers, *self.extra]
        await self._send({"type": "http.response.start", "status": 200, "headers": fields})

    async def write(self, chunk: bytes) -> None:
        """More of the stream; waits while the client reads slowly."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        await asyncio.sleep(0)  # so that whoever talks without a pause hears that nobody listens

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    async def give_up(self) -> None:
        """The server ends before the answer is there."""
        if self.started:
            await self.end()
        else:
            await self.send_text(503, "the server ends", [(b"retry-after", b"5")])

    def watch(self, left: Callable[[], None], beat: Heartbeat, every: float) -> None:
        """Have `left` called if the client goes away, and `beat` while nothing else is written.

        Call `unwatch` before the last part of the answer is written.
        """
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PATIENCE, self._attend, left, beat, every)

    def _attend(self, left: Callable[[], None], beat: Heartbeat, every: float) -> None:
        loop = asyncio.get_running_loop()
        self._watcher = loop.create_task(self._until_gone(left))
        if every:
            self._timer = loop.call_later(every, self._beat, beat, every)

    def _beat(self, beat: Heartbeat, every: float) -> None:
        loop = asyncio.get_running_loop()
        if self._beating is None or self._beating.done():  # else a slow reader: once is enough
            self._beating = loop.create_task(_quietly(beat))
        self._timer = loop.call_later(every, self._beat, beat, every)

    async def _until_gone(self, left: Callable[[], None]) -> None:
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
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await beat()
