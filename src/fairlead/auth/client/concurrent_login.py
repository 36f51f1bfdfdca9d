"""Interactive logins of several programs at once: one asks the user, and the others use its result.

No lock of the login is held while a user logs in. The program that asks the user holds a lock of
its own, so that programs that start together open one page and not one each.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from ...errors import AuthorizationError
from ...transport import timeouts
from ..storage.credential_store import LoginLock, StoredLogin
from ..storage.store_threads import in_store_thread
from .interactive_login import LOGIN_TIMEOUT, LoginPrompt, progress
from .login_record import LoginRecord, LoginWish, try_lock

__all__ = ["ConcurrentLogin"]

log = logging.getLogger("fairlead.auth")

STORE_POLL = 0.5  # seconds between two looks for a login that another program has stored


class ConcurrentLogin:
    """One interactive login, which ends early if another program stores a suitable login."""

    def __init__(
        self, record: LoginRecord, host: str, prompt: LoginPrompt, wish: LoginWish
    ) -> None:
        self._record = record
        self._host = host
        self._prompt = prompt
        self._wish = wish

    async def run(
        self,
        log_in: Callable[[], Coroutine[Any, Any, StoredLogin]],
        adopt: Callable[[StoredLogin], None],
    ) -> bool:
        """Log in and store the login; return False if another program has made and stored it.

        A program does not ask the user while another one does, unless the login is explicit.
        `adopt` is called with the login, even if it cannot be stored.

        Raises:
            AuthorizationError: The login failed, or it cannot be stored.
        """
        watching = asyncio.create_task(self._stored_elsewhere())
        try:
            async with self._turn() as turn:
                if not turn.acquired:
                    self._prompt.login_elsewhere(self._host)
                    if not self._wish.explicit:
                        found = await self._wait_for(turn, watching)
                        if found is not None:
                            adopt(found)
                            return False
                found, is_own = await self._first(log_in, watching)
                adopt(found)
                if is_own:
                    # Stored before the turn ends, so that programs that wait for it find it.
                    await self._record.replace(found)
                return is_own
        finally:
            await _cancel(watching)

    async def _first(
        self,
        log_in: Callable[[], Coroutine[Any, Any, StoredLogin]],
        watching: "asyncio.Task[StoredLogin]",
    ) -> tuple[StoredLogin, bool]:
        own = asyncio.create_task(log_in())
        try:
            await asyncio.wait((own, watching), return_when=asyncio.FIRST_COMPLETED)
            if own.done() and (not watching.done() or own.exception() is None):
                return own.result(), True
            return watching.result(), False
        finally:
            await _cancel(own)

    async def _wait_for(
        self, turn: "_Turn", watching: "asyncio.Task[StoredLogin]"
    ) -> StoredLogin | None:
        """Return the login of the program that asks the user; None if it ends without one."""
        taking = asyncio.create_task(turn.acquire())
        try:
            async with timeouts.timeout(LOGIN_TIMEOUT), progress(self._prompt, LOGIN_TIMEOUT):
                await asyncio.wait((watching, taking), return_when=asyncio.FIRST_COMPLETED)
                # The other program stores its result before it ends.
                return await self._suitable() if taking.done() else watching.result()
        except TimeoutError as exc:
            raise AuthorizationError(
                f"another program has been asking the user to log in to {self._host} for "
                f"{LOGIN_TIMEOUT / 60:.0f} minutes; complete that login, or end that program",
                step="authorization",
                temporary=True,
            ) from exc
        finally:
            await _cancel(taking)

    async def _stored_elsewhere(self) -> StoredLogin:
        """Wait until another program has stored a suitable login."""
        while True:
            await asyncio.sleep(STORE_POLL)
            # The user may still complete a login while the store cannot be read.
            with contextlib.suppress(AuthorizationError):
                if (found := await self._suitable()) is not None:
                    return found

    async def _suitable(self) -> StoredLogin | None:
        found = await self._record.load_newer(self._wish.previous)
        return found if found is not None and self._wish.is_met_by(found) else None

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator["_Turn"]:
        turn = _Turn(await in_store_thread(self._record.turn))
        await turn.try_acquire()
        try:
            yield turn
        finally:
            turn.release()


class _Turn:
    """The right to ask the user, which one program has at a time."""

    def __init__(self, lock: LoginLock) -> None:
        self._lock = lock
        self.acquired = False

    async def try_acquire(self) -> None:
        self.acquired = await try_lock(self._lock)

    async def acquire(self) -> None:
        while not self.acquired:
            await asyncio.sleep(STORE_POLL)
            await self.try_acquire()

    def release(self) -> None:
        if self.acquired:
            self._lock.release()


async def _cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not report it
