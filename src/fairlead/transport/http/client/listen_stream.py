"""The stream on which a server of the handshake era speaks unasked: opened, followed, restored."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ....errors import ChannelClosed, FairleadError, HttpError, TransportError
from ....wire import MAX_MESSAGE
from ....wire.sse import Event, EventParser, EventTooLong
from ...backoff import exponential
from .http1.http_client import HttpClient, HttpResponse

__all__ = ["ListenStream", "OnEvent", "SessionListener", "backoff", "read_events"]

LASTED = 5.0  # seconds after which a stream that ends has been worth opening
SHORTEST, LONGEST = 0.5, 30.0  # seconds before it is opened again
LEAST = 0.05  # whatever the server says
TRIES = 8  # failures in a row before we give up

log = logging.getLogger("fairlead.transport")

OnEvent = Callable[[Event | EventTooLong], None]


async def read_events(reply: HttpResponse, parser: EventParser, take: OnEvent) -> None:
    """Hand over the events of a stream until it ends. Raises `ChannelClosed` if it breaks."""
    try:
        while chunk := await reply.chunk():
            for event in parser.feed(chunk):
                take(event)
    finally:
        reply.close()


def backoff(failures: int, retry: int | None = None) -> float:
    """Seconds to wait: what the server asked for, else doubling; never in step with others."""
    least = SHORTEST if retry is None else max(retry / 1000, LEAST)
    if failures > 1:
        least = max(least, exponential(SHORTEST, failures - 1, LONGEST))
    return least * random.uniform(1.0, 1.25)


class ListenStream:
    """Keeps one GET stream open as long as the server offers it."""

    def __init__(
        self,
        door: HttpClient,
        headers: Callable[[str | None], dict[str, str]],
        take: OnEvent,
        *,
        refused: Callable[[HttpError], Awaitable[bool]],
        on_error: Callable[[Exception], None],
        limit: int = MAX_MESSAGE,
    ) -> None:
        """`headers` are asked with the last event id. `refused` may mend the cause of a refusal
        and say so; then the stream is opened once more.
        """
        self.settled = asyncio.Event()  # open, or known not to be offered
        self._door = door
        self._headers = headers
        self._take = take
        self._refused = refused
        self._on_error = on_error
        self._parser = EventParser(limit)
        self._limit = limit
        self._retry: int | None = None
        self._opened = False
        self._heard = False
        self.mending = False  # somebody sees to a refusal

    async def run(self) -> None:
        """Listen until the server does not offer it.

        Raises:
            ChannelClosed: it was open once and cannot be restored.
        """
        failures = 0
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                try:
                    if not await self._listen_once():
                        return
                    failures = 1 if loop.time() - began > LASTED else failures + 1
                    problem: TransportError | None = None
                except TransportError as exc:
                    self._on_error(exc)
                    lasted = self._heard and loop.time() - began > LASTED
                    failures = 1 if lasted else failures + 1
                    problem = exc
                if problem is not None and failures > TRIES:
                    self._give_up(problem)
                    return
                await asyncio.sleep(backoff(failures, self._retry))
        finally:
            self.settled.set()

    async def _listen_once(self) -> bool:
        """Follow the stream until it ends; False if the server does not offer one."""
        self._heard = False
        reply = await self._open()
        if reply.ok and reply.streams:
            self._opened = self._heard = True
            self.settled.set()
            parser = EventParser(self._limit)
            parser.last_id, self._parser = self._parser.last_id, parser
            await read_events(reply, parser, self._event)
            return True
        error, _ = await reply.refusal()
        if reply.status == 405 or (not self._opened):
            if reply.status != 405:
                log.debug("no listening stream: %s", error)
            return False
        raise error

    async def _open(self) -> HttpResponse:
        reply = await self._door.open("GET", self._headers(self._parser.last_id))
        if reply.status in (401, 403, 404):
            error, _ = await reply.refusal()
            self.mending = True
            try:
                mended = await self._refused(error)
            finally:
                self.mending = False
            if mended:
                if reply.status == 404:
                    self._parser.last_id = None  # it was of another session
                return await self._door.open("GET", self._headers(self._parser.last_id))
            if not self._opened:
                return reply
            raise error
        return reply

    def _event(self, event: Event | EventTooLong) -> None:
        if isinstance(event, Event) and event.retry is not None:
            self._retry = event.retry
        self._take(event)

    def _give_up(self, problem: TransportError) -> None:
        if self._opened:
            raise ChannelClosed(f"the listening stream cannot be restored: {problem}") from problem
        log.debug("no listening stream: %s", problem)


class SessionListener:
    """Follows one `ListenStream` at a time, and another one when the session was renewed."""

    def __init__(
        self,
        make: Callable[[], ListenStream],
        *,
        start: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        lost: Callable[[ChannelClosed], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        """`lost` is called if a stream was open once and cannot be restored."""
        self.task: asyncio.Task[None] | None = None
        self._stream: ListenStream | None = None
        self._make = make
        self._start = start
        self._lost = lost
        self._on_error = on_error

    @property
    def active(self) -> bool:
        return self.task is not None and not self.task.done()

    async def open(self, seconds: float) -> None:
        """Listen, and wait so long until the stream is open or known to be missing."""
        if not self.active:
            self._begin()
        assert self._stream is not None
        try:
            async with asyncio.timeout(seconds):
                await self._stream.settled.wait()
        except TimeoutError:
            log.debug("the listening stream takes its time")

    def reopen(self) -> None:
        """Listen in a new session. A stream that was refused in the old one does so by itself."""
        if self.task is None or self.task.done():
            return
        if self._stream is not None and not self._stream.mending:
            self.task.cancel()
            self._begin()

    def _begin(self) -> None:
        self._stream = self._make()
        self.task = self._start(self._follow(self._stream))

    async def _follow(self, stream: ListenStream) -> None:
        try:
            await stream.run()
        except ChannelClosed as exc:
            self._lost(exc)
        except FairleadError as exc:
            self._on_error(exc)
