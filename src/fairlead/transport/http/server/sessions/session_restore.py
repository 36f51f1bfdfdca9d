"""Taking up sessions again that another process has begun, or this one before it was restarted."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from .....errors import RemoteProtocolError
from .....protocol.envelope import TransportContext
from .....protocol.identity.principal import Principal, principal_name
from .....wire import Notification, Request, decode, encode
from .http_session import HttpSession
from .session_store import SessionStore, StoredSession, key_of

__all__ = ["SessionRestorer"]

T = TypeVar("T")
P = ParamSpec("P")

OPENING = 30.0  # seconds that the server may take for a handshake that nobody waits for

log = logging.getLogger("fairlead.transport")

Make = Callable[[TransportContext, Principal, str], HttpSession]
Add = Callable[[HttpSession], None]
End = Callable[[HttpSession, bool], Awaitable[None]]  # for good, or only here


class SessionRestorer:
    """Keeps the sessions of one endpoint in a store, and takes them from there.

    A store that fails is no reason to refuse anybody: sessions are then as mortal as without one.
    """

    def __init__(self, store: SessionStore, idle: float, make: Make, add: Add, end: End) -> None:
        """`idle` is for how many seconds a session may not be used; 0: for ever.

        A session is made first, and added to the others when the server has agreed.
        """
        self._store = store
        self._idle = idle
        self._make, self._add, self._end = make, add, end
        self._reviving: dict[tuple[str, Principal], asyncio.Task[HttpSession | None]] = {}

    async def keep(self, session: HttpSession, opening: Request) -> None:
        """A session has begun."""
        assert session.revision is not None
        session.key = key_of(session.context.path or "", session.id)
        at = time.time()
        stored = StoredSession(
            key=session.key,
            principal=principal_name(session.principal),
            client=session.client,
            opening=encode(opening),
            revision=session.revision.value,
            created=at,
            used=at,
        )
        await self._try(self._store.save, stored)

    async def touch(self, keys: list[str]) -> None:
        """These are in use; and those that nobody has used for long are forgotten."""
        at = time.time()
        await self._try(self._store.touch, keys, at)
        if self._idle:
            await self._try(self._store.expire, at - self._idle)

    async def forget(self, key: str) -> None:
        """A session is over."""
        await self._try(self._store.delete, key)

    async def drop(self, session_id: str, path: str, principal: Principal) -> bool:
        """A client ends a session that is not alive; whether there was one."""
        found = await self._find(key_of(path, session_id), principal)
        if found is not None:
            await self.forget(found.key)
        return found is not None

    async def restore_session(
        self, session_id: str, context: TransportContext, principal: Principal
    ) -> HttpSession | None:
        """The session, as if it had never been away; None if there is none for this client."""
        key = key_of(context.path or "", session_id)
        task = self._reviving.get((key, principal))
        if task is None:
            work = self._revive(session_id, key, context, principal)
            task = asyncio.get_running_loop().create_task(work)
            self._reviving[key, principal] = task
            task.add_done_callback(lambda _: self._reviving.pop((key, principal), None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                return None  # the server ends
            raise

    async def close(self) -> None:
        """Nobody is taken up any more."""
        tasks = list(self._reviving.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _revive(
        self, session_id: str, key: str, context: TransportContext, principal: Principal
    ) -> HttpSession | None:
        stored = await self._find(key, principal)
        if stored is None:
            return None
        opening = _opening(stored)
        if opening is None:
            return None
        session = self._make(context, principal, session_id)
        session.key = key
        try:
            agrees = await self._begin(session, opening)
        except BaseException:
            await self._end(session, False)  # we end, and whoever comes after us takes it up
            raise
        if agrees and session.revision == stored.revision:
            self._add(session)
            return session
        # A server that says no is another one now: the client has to begin anew. One that says
        # nothing may still come to itself.
        await self._end(session, agrees is not None)
        return None

    async def _begin(self, session: HttpSession, opening: Request) -> bool | None:
        """Let the server hear what it, or the one before it, has heard; whether it agrees, or None
        if it does not say."""
        stream = session.open_stream([opening])
        session.take(opening)
        try:
            async with asyncio.timeout(OPENING):
                while not stream.done:
                    await stream.wait()
        except TimeoutError:
            log.warning("a session could not be taken up again: the server is silent")
            return None
        if not session.settle_revision():
            return False
        session.take(Notification("notifications/initialized"))
        return True

    async def _find(self, key: str, principal: Principal) -> StoredSession | None:
        stored = await self._try(self._store.load, key)
        if stored is None or stored.principal != principal_name(principal):
            return None
        if self._idle and stored.used < time.time() - self._idle:
            return None
        return stored

    async def _try(
        self, work: Callable[P, Awaitable[T]], *args: P.args, **more: P.kwargs
    ) -> T | None:
        try:
            return await work(*args, **more)
        except Exception as exc:  # somebody else's code, a disk, a lock
            log.error("the store of sessions failed: %s: %s", type(exc).__name__, exc)
            return None


def _opening(stored: StoredSession) -> Request | None:
    try:
        opening = decode(stored.opening)
    except RemoteProtocolError:
        opening = None
    if not isinstance(opening, Request):
        log.error("the store of sessions gives something that nobody has kept there")
        return None
    return opening
