"""Listening stream: the GET stream for server messages unrelated to a request (handshake era)."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from msgspec import Struct

from ....errors import ChannelClosed, FairleadError, HttpError, TransportError
from ....wire import MAX_MESSAGE
from ....wire.sse import Event, EventParser, EventTooLong
from ... import timeouts
from ...backoff import exponential
from .http1.http_client import HttpClient, HttpResponse

__all__ = ["ListenStream", "OnEvent", "SessionListener", "backoff", "read_events"]

LASTED = 5.0  # seconds that a stream must last to count as a success
SHORTEST, LONGEST = 0.5, 30.0  # seconds between two attempts, at least and at most
LEAST = 0.05  # seconds between two attempts, even if the server's `retry` field is shorter
TRIES = 8  # consecutive failures before the stream is given up

log = logging.getLogger("fairlead.transport")

OnEvent = Callable[[Event | EventTooLong], None]


async def read_events(reply: HttpResponse, parser: EventParser, take: OnEvent) -> None:
    """Pass the events of a stream to `take` until it ends.

    Raises:
        ChannelClosed: The connection broke.
    """
    try:
        while chunk := await reply.chunk():
            for event in parser.feed(chunk):
                take(event)
    finally:
        reply.close()


def backoff(failures: int, retry: int | None = None) -> float:
    """Return the delay in seconds: `retry` milliseconds from the server, or exponential backoff."""
    least = SHORTEST if retry is None else max(retry / 1000, LEAST)
    if failures > 1:
        least = max(least, exponential(SHORTEST, failures - 1, LONGEST))
    # Jitter, so that the clients of a restarted server do not all reconnect at once.
    return least * random.uniform(1.0, 1.25)


class ListenStream:
    """One GET stream, reopened as long as the server offers it."""

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
        """`headers` is called with the id of the last event and returns the headers of the GET.

        `refused` is called if the server refuses the stream. If it returns True, the stream is
        requested once more.
        """
        self.settled = asyncio.Event()  # set once the stream is open or has failed
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
        self.mending = False  # True while `refused` runs

    async def run(self) -> None:
        """Follow the stream until the server no longer offers it.

        Raises:
            ChannelClosed: The stream was open once and cannot be restored.
        """
        failures = 0
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                problem: TransportError | None = None
                try:
                    if not await self._listen_once():
                        return
                except TransportError as exc:
                    self._on_error(exc)
                    problem = exc
                # A server may end the stream at any time and expects the client to reconnect.
                # Only streams that end soon after they were opened count as failures.
                lasted = self._heard and loop.time() - began > LASTED
                failures = 1 if lasted else failures + 1
                if problem is not None and failures > TRIES:
                    if self._opened:
                        why = f"the listening stream cannot be restored: {problem}"
                        raise ChannelClosed(why) from problem
                    log.debug("the listening stream cannot be opened: %s", problem)
                    return
                await asyncio.sleep(backoff(failures, self._retry))
        # Set after a failure too, because requests wait for this event.
        finally:
            self.settled.set()

    async def _listen_once(self) -> bool:
        """Follow the stream until it ends; return False if the server does not offer one."""
        self._heard = False
        reply = await self._open()
        if reply.ok and reply.streams:
            self._opened = self._heard = True
            self.settled.set()
            # A new parser drops an incomplete event, but keeps the last event id.
            parser = EventParser(self._limit)
            parser.last_id, self._parser = self._parser.last_id, parser
            await read_events(reply, parser, self._event)
            return True
        error, _ = await reply.refusal()
        # A server without the stream responds with 405.
        # Until the stream was open once, any other error also means that the server offers none.
        if reply.status == 405 or (not self._opened):
            if reply.status != 405:
                log.debug("the server does not offer a listening stream: %s", error)
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
                    self._parser.last_id = None  # the id belongs to the old session
                return await self._door.open("GET", self._headers(self._parser.last_id))
            if not self._opened:
                return reply
            raise error
        return reply

    def _event(self, event: Event | EventTooLong) -> None:
        if isinstance(event, Event) and event.retry is not None:
            self._retry = event.retry
        self._take(event)


class SessionListener(Struct, eq=False):
    """Owner of one `ListenStream` at a time, which is replaced when the session is renewed.

    `make` creates a stream. `lost` is called if a stream was open and cannot be restored.
    """

    make: Callable[[], ListenStream]
    start: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
    lost: Callable[[ChannelClosed], None]
    on_error: Callable[[Exception], None]
    task: asyncio.Task[None] | None = None
    _stream: ListenStream | None = None

    @property
    def active(self) -> bool:
        return self.task is not None and not self.task.done()

    async def open(self, seconds: float) -> None:
        """Start to listen, and wait up to `seconds` until the stream is open or has failed."""
        if not self.active:
            self._begin()
        assert self._stream is not None
        try:
            async with timeouts.timeout(seconds):
                await self._stream.settled.wait()
        except TimeoutError:
            log.debug("the listening stream did not open in time")

    def reopen(self) -> None:
        """Open a stream in the new session.

        A stream whose own refusal caused the renewal reopens without this call.
        """
        if self.task is None or self._stream is None or self._stream.mending:
            return
        if not self.task.done():
            self.task.cancel()
            self._begin()

    def _begin(self) -> None:
        self._stream = self.make()
        self.task = self.start(self._follow(self._stream))

    async def _follow(self, stream: ListenStream) -> None:
        try:
            await stream.run()
        except ChannelClosed as exc:
            self.lost(exc)
        except FairleadError as exc:
            self.on_error(exc)
