"""The end of sessions: of the one we are in, and of one that nobody waits for any more.

A server that is never told keeps a session until it finds it idle for too long. So an `initialize`
that has left is heard out even if whoever sent it has gone: its answer names a session to end.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ....errors import TransportError
from .http1.http_client import HttpClient, HttpResponse
from .response_messages import session_id_of

__all__ = ["SessionTeardown"]

HEAR_OUT = 2.0  # seconds for the answer to an `initialize` that nobody waits for any more
DELETE_GRACE = 2.0  # seconds for the end of a session

log = logging.getLogger("fairlead.transport")


class SessionTeardown:
    """Opens sessions for those who may leave before they have them, and ends sessions."""

    def __init__(self, door: HttpClient, headers: Callable[[str], dict[str, str]]) -> None:
        """`headers` are those of the DELETE for a session."""
        self._door = door
        self._headers = headers
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """POST an `initialize` as `HttpClient.open` does; if cancelled, leave no session."""
        opening = asyncio.get_running_loop().create_task(self._door.open("POST", headers, body))
        try:
            await asyncio.wait((opening,))
        except asyncio.CancelledError:
            self._start(self._hear_out(opening))
            raise
        return opening.result()

    def end(self, session_id: str | None) -> None:
        """Begin to end a session."""
        if session_id is not None:
            self._start(self._delete(session_id))

    async def wait(self) -> None:
        """Wait until all that was begun is done, or has taken too long."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hear_out(self, opening: "asyncio.Task[HttpResponse]") -> None:
        try:
            if self._door.reached:  # else it has not left
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
            async with asyncio.timeout(DELETE_GRACE):
                reply = await self._door.open("DELETE", self._headers(session_id))
                await reply.read(1 << 16)
        except (TransportError, TimeoutError) as exc:
            log.debug("the session could not be ended: %s", exc)
