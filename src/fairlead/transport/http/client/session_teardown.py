"""Termination of sessions, even if their `initialize` was cancelled.

A server keeps a session until it is terminated or idle for too long. Therefore the response to an
`initialize` is awaited even if its caller was cancelled: the response names the session to
terminate.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from ....errors import TransportError
from ... import timeouts
from ...background_tasks import BackgroundTasks
from .http1.http_client import HttpClient, HttpResponse
from .response_messages import session_id_of

__all__ = ["SessionTeardown"]

HEAR_OUT = 2.0  # seconds for the response to a cancelled `initialize`
DELETE_GRACE = 2.0  # seconds for the DELETE of a session

log = logging.getLogger("fairlead.transport")


class SessionTeardown:
    """Opening and termination of sessions. If opening is cancelled, the session is terminated."""

    def __init__(self, door: HttpClient, headers: Callable[[str], dict[str, str]]) -> None:
        """`headers` returns the headers of the DELETE for a session id."""
        self._door = door
        self._headers = headers
        self._tasks = BackgroundTasks()

    async def open(self, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """POST an `initialize` like `HttpClient.open`; if cancelled, terminate the new session."""
        opening = asyncio.get_running_loop().create_task(self._door.open("POST", headers, body))
        try:
            # `wait` does not cancel the task when this coroutine is cancelled.
            await asyncio.wait((opening,))
        except asyncio.CancelledError:
            self._tasks.start(self._hear_out(opening))
            raise
        return opening.result()

    def end(self, session_id: str | None) -> None:
        """Start to terminate a session."""
        if session_id is not None:
            self._tasks.start(self._delete(session_id))

    async def wait(self) -> None:
        """Wait until all terminations have completed or timed out."""
        # A loop, because an abandoned `initialize` may add another task.
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _hear_out(self, opening: "asyncio.Task[HttpResponse]") -> None:
        try:
            # Without a connection the request was not sent and opened no session.
            if self._door.reached:
                await asyncio.wait((opening,), timeout=HEAR_OUT)
        finally:
            if not opening.done():
                opening.cancel()
                await asyncio.wait((opening,))
        if opening.cancelled() or opening.exception() is not None:
            return
        reply = opening.result()
        reply.close()
        if (given := session_id_of(reply)) is not None:
            await self._delete(given)

    async def _delete(self, session_id: str) -> None:
        try:
            async with timeouts.timeout(DELETE_GRACE):
                reply = await self._door.open("DELETE", self._headers(session_id))
                await reply.read(1 << 16)
        except (TransportError, TimeoutError) as exc:
            log.debug("cannot terminate the session: %s", exc)
