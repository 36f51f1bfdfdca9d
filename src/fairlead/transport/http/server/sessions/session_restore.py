"""Restoration of sessions that another process opened, or this one before a restart."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from .....errors import RemoteProtocolError
from .....protocol.caller import Principal, principal_name
from .....protocol.envelope import TransportContext
from .....protocol.identity.token_principal import TOKEN_PRINCIPAL, TokenPrincipal
from .....wire import Notification, Request, decode, encode
from .... import timeouts
from .http_session import HttpSession
from .session_store import SessionStore, StoredSession, key_of

__all__ = ["SessionRestorer"]

T = TypeVar("T")
P = ParamSpec("P")

OPENING = 30.0  # seconds for the server to respond to a replayed handshake

log = logging.getLogger("fairlead.transport")

Make = Callable[[TransportContext, Principal, str], HttpSession]
Add = Callable[[HttpSession], None]
# Ends a session. With True it is deleted from the store as well, otherwise it can be restored.
End = Callable[[HttpSession, bool], Awaitable[None]]


class SessionRestorer:
    """Storage of the sessions of one endpoint, and their restoration.

    A store that fails does not affect clients; sessions then end with the process, as without a
    store.
    """

    def __init__(self, store: SessionStore, idle: float, make: Make, add: Add, end: End) -> None:
        """`idle` is the time in seconds after which an unused session expires; 0 means never.

        `make` creates a session, and `add` registers it once the server has accepted the handshake.
        """
        self._store = store
        self._idle = idle
        self._make, self._add, self._end = make, add, end
        self._reviving: dict[tuple[str, Principal], asyncio.Task[HttpSession | None]] = {}

    async def keep(self, session: HttpSession, opening: Request) -> None:
        """Store a new session."""
        assert session.revision is not None
        session.key = key_of(session.context.path or "", session.id)
        # Wall-clock time, because the monotonic clock has no meaning in another process.
        at = time.time()
        stored = StoredSession(
            key=session.key,
            principal=_owner(session.principal),
            client=session.client,
            opening=encode(opening),
            revision=session.revision.value,
            created=at,
            used=at,
        )
        await self._try(self._store.save, stored)

    async def touch(self, keys: list[str]) -> None:
        """Mark sessions as used, and delete those that were unused for too long."""
        at = time.time()
        await self._try(self._store.touch, keys, at)
        if self._idle:
            await self._try(self._store.expire, at - self._idle)

    async def forget(self, key: str) -> None:
        """Delete a session that has ended."""
        await self._try(self._store.delete, key)

    async def drop(self, session_id: str, path: str, principal: Principal) -> bool:
        """Delete a stored session at the request of its client; return False if it is unknown."""
        found = await self._find(key_of(path, session_id), principal)
        if found is not None:
            await self.forget(found.key)
        return found is not None

    async def restore_session(
        self, session_id: str, context: TransportContext, principal: Principal
    ) -> HttpSession | None:
        """Return the restored session, or None if this client has no such session."""
        key = key_of(context.path or "", session_id)
        # Requests that arrive during the restoration share one task.
        task = self._reviving.get((key, principal))
        if task is None:
            work = self._revive(session_id, key, context, principal)
            task = asyncio.get_running_loop().create_task(work)
            self._reviving[key, principal] = task
            task.add_done_callback(lambda _: self._reviving.pop((key, principal), None))
        try:
            # Shielded: other requests may wait for the same session.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                return None  # cancelled by `close`
            raise

    async def close(self) -> None:
        """Cancel the restorations in progress."""
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
            # The server is shutting down. The stored session stays for the next process.
            await self._end(session, False)
            raise
        if agrees and session.revision == stored.revision:
            self._add(session)
            return session
        # A server that refuses the handshake has changed, so the client must open a new session.
        # A server that did not respond may recover; the session stays in the store.
        await self._end(session, agrees is not None)
        return None

    async def _begin(self, session: HttpSession, opening: Request) -> bool | None:
        """Replay the handshake to the server; return True if it agrees, None if it does not
        respond.
        """
        stream = session.open_stream({opening.id})
        session.hand_over(opening)
        try:
            async with timeouts.timeout(OPENING):
                while not stream.done:
                    await stream.wait()
        except TimeoutError:
            log.warning("cannot restore a session: the server did not respond in time")
            return None
        if not session.settle_revision():
            return False
        session.hand_over(Notification("notifications/initialized"))
        return True

    async def _find(self, key: str, principal: Principal) -> StoredSession | None:
        stored = await self._try(self._store.load, key)
        if stored is None or stored.principal != _owner(principal):
            return None
        if self._idle and stored.used < time.time() - self._idle:
            return None
        return stored

    async def _try(
        self, work: Callable[P, Awaitable[T]], *args: P.args, **more: P.kwargs
    ) -> T | None:
        try:
            return await work(*args, **more)
        # The store may be user code, and may fail because of a disk or a lock.
        except Exception as exc:
            log.error("the session store failed: %s: %s", type(exc).__name__, exc)
            return None


def _owner(principal: Principal) -> str | None:
    """Return the name of the principal to which a session belongs, which includes its role."""
    name = principal_name(principal)
    if isinstance(principal, TokenPrincipal) and principal.role is not None:
        # No other principal has such a name: the prefix is reserved.
        return f"{TOKEN_PRINCIPAL}role={principal.role} {name}"
    return name


def _opening(stored: StoredSession) -> Request | None:
    try:
        opening = decode(stored.opening)
    except RemoteProtocolError:
        opening = None
    if not isinstance(opening, Request):
        log.error("cannot restore a session: its stored `initialize` request is invalid")
        return None
    return opening
