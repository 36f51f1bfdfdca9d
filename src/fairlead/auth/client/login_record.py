"""The stored login of one owner at one server, and the lock that threads and processes share."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from ...errors import AuthorizationError
from ..challenge import Challenge
from ..storage.credential_store import CredentialStore, LoginLock, StoredLogin
from ..storage.store_threads import in_store_thread

__all__ = ["LoginBusy", "LoginRecord", "LoginTarget", "LoginWish", "try_lock"]

FIRST_POLL = 0.01  # seconds between the first two attempts to lock a login, on average
LONGEST_POLL = 0.25  # seconds between looks at a lock that another process holds, at most
REPLACE_TIMEOUT = 11.0  # seconds to wait for the lock; longer than a renewal takes


class LoginTarget(Struct, frozen=True):
    """The server and the owner of a login."""

    url: str  # URL of the server
    owner: str = ""
    server: str = ""  # key of the login in the store


class LoginWish(Struct, frozen=True):
    """The login that a program needs, and why."""

    challenge: Challenge | None
    previous: StoredLogin | None  # the login to be replaced
    scopes: Sequence[str] | None = None  # instead of the default scopes
    explicit: bool = False  # the user asked for a new login, even if the previous one is valid
    new_client: bool = False  # the program is to be registered again

    def is_met_by(self, found: StoredLogin) -> bool:
        """Return True if the login of another program can be used instead."""
        if found.ended:
            return False
        if not self.explicit:
            held = {*found.requested, *found.tokens.scopes}
            return self.scopes is None or held.issuperset(self.scopes)
        # A renewal of the previous login is not what the user asked for.
        renewed = self.previous is not None and found.login_id == self.previous.login_id
        same = self.scopes is None or set(self.scopes) == set(found.requested)
        return same and not renewed and not self.new_client


class LoginBusy(AuthorizationError):
    """Another process holds the lock of a login."""


class LoginRecord:
    """Access to one login in a store."""

    def __init__(self, store: CredentialStore, target: LoginTarget) -> None:
        self._store = store
        self._target = target

    async def load(self) -> StoredLogin | None:
        """Return the stored login, unless it belongs to another resource.

        Any file can name a `credentialId`, so a matching name is not enough to get the token.
        """
        found = await in_store_thread(self._store.load, self._target.owner, self._target.server)
        if found is None or found.kind != "oauth":
            return None
        return found if found.covers(self._target.url) else None

    async def load_newer(self, known: StoredLogin | None) -> StoredLogin | None:
        """Return the stored login if another program replaced, renewed or ended the known one."""
        found = await self.load()
        if found is None or known is None:
            return found
        # The store has an older login or generation if the last one could not be written.
        if found.login_id != known.login_id:
            return None if found.login_id == known.replaced_id else found
        renewed = found.generation > known.generation
        return found if renewed or (found.ended and not known.ended) else None

    async def save(self, login: StoredLogin) -> None:
        await in_store_thread(self._store.save, login)

    async def replace(self, login: StoredLogin) -> None:
        """Store a new login. A renewal of another process is awaited, as in `remove`."""
        try:
            async with self.exclusive(None, REPLACE_TIMEOUT, always=True):
                await self.save(login)
        except LoginBusy:
            await self.save(login)

    def turn(self) -> LoginLock:
        """Return a lock for the program that asks the user to log in; others may still renew."""
        return self._store.lock(self._target.owner, f"{self._target.server} interactive")

    async def remove(self) -> tuple[StoredLogin | None, bool]:
        """Delete the login; return it, and whether there was a record to delete.

        A renewal of another process is awaited, because its result would be stored afterwards.
        """
        try:
            async with self.exclusive(None, REPLACE_TIMEOUT, always=True):
                return await self._remove()
        except LoginBusy:
            return await self._remove()

    async def _remove(self) -> tuple[StoredLogin | None, bool]:
        login = await self.load()
        target = self._target
        return login, await in_store_thread(self._store.delete, target.owner, target.server)

    @contextlib.asynccontextmanager
    async def exclusive(
        self, known: StoredLogin | None, seconds: float, *, always: bool = False
    ) -> AsyncIterator[StoredLogin | None]:
        """Hold the lock of the login and yield None, or yield a newer login of another process.

        Another process may still hold the lock of a newer login, except with `always`.

        Raises:
            LoginBusy: The lock is not free in time.
        """
        lock = await in_store_thread(self._store.lock, self._target.owner, self._target.server)
        deadline, pause = time.monotonic() + seconds, FIRST_POLL
        while not await try_lock(lock):
            if not always and (newer := await self.load_newer(known)) is not None:
                yield newer
                return
            if time.monotonic() > deadline:
                raise LoginBusy(
                    f"another process has been renewing the login for {self._host} for more than "
                    f"{seconds:.0f} s; try again, or end that process",
                    step="storage",
                    server=self._target.url,
                    temporary=True,
                )
            # Polled, because a thread that waits for a lock cannot be cancelled.
            await asyncio.sleep(random.uniform(0.5, 1.5) * pause)
            pause = min(pause * 1.5, LONGEST_POLL)
        try:
            # Read again: the previous holder may have stored a result just before its release.
            yield await self.load_newer(known)
        finally:
            lock.release()

    @property
    def _host(self) -> str:
        return urlsplit(self._target.url).netloc.rpartition("@")[2]


async def try_lock(lock: LoginLock) -> bool:
    """Acquire a lock if it is free. Cancelling this never leaves the lock acquired."""
    call = asyncio.ensure_future(in_store_thread(lock.try_acquire))

    def release(_: object) -> None:
        if not call.cancelled() and call.exception() is None and call.result():
            lock.release()

    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        call.add_done_callback(release)  # the thread cannot be cancelled
        raise
