"""Sessions of an endpoint: creation, lookup, restoration and termination, with limits."""

import asyncio
import logging
import secrets
import time

from .....limits import SESSIONS_PER_CLIENT
from .....protocol.caller import Principal
from .....protocol.envelope import TransportContext
from .....protocol.identity.client_key import client_key
from ....background_tasks import BackgroundTasks
from ....client_shares import ClientShares, NoShareLeft
from ..asgi import HttpCall
from ..http_settings import HttpSettings
from .event_store import EventStore, MemoryEventStore
from .http_session import AcceptSession, HttpSession
from .session_restore import SessionRestorer

__all__ = ["SessionManager"]

log = logging.getLogger("fairlead.transport")


class SessionManager:
    """All sessions of an endpoint."""

    def __init__(self, settings: HttpSettings, accept: AcceptSession) -> None:
        self._settings = settings
        self._accept = accept
        self.store: EventStore = settings.event_store or MemoryEventStore(owner_of=self._client_of)
        self._sessions: dict[str, HttpSession] = {}
        self._shares: ClientShares[HttpSession] = ClientShares(
            settings.max_sessions,
            settings.max_sessions_per_client,
            SESSIONS_PER_CLIENT,
            is_idle=lambda session: not session.busy,
            used=lambda session: session.used,
        )
        self._ending = BackgroundTasks()
        self.restorer: SessionRestorer | None = None
        self._touched = 0.0  # time of the last update of the session store
        if settings.session_store is not None:
            store, kept = settings.session_store, settings.session_kept
            self.restorer = SessionRestorer(store, kept, self._made, self._add, self.end)
        self._sweep: asyncio.TimerHandle | None = None
        self.draining = False  # no new sessions are opened
        self.closing = False

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def requests_in_progress(self) -> int:
        """The number of requests in all sessions that are not answered yet."""
        peers = [one.served for one in self._sessions.values()]
        return sum(peer.requests_in_progress for peer in peers if peer is not None)

    def open(self, context: TransportContext, principal: Principal) -> HttpSession:
        """Open a session and start to serve it.

        Raises:
            NoShareLeft: A limit of sessions is reached, and none can be ended for the client.
        """
        session = self._made(context, principal, secrets.token_urlsafe(24))
        self._add(session)
        return session

    def _made(
        self, context: TransportContext, principal: Principal, session_id: str
    ) -> HttpSession:
        client = client_key(principal, context.peer_address)
        victim = self._shares.make_room(client)
        if victim is not None:
            log.info("ending session %s… to make room for another one", victim.id[:6])
            self._end_soon(victim)
        session = HttpSession(session_id, context, principal, self.store)
        session.client = client
        session.served = self._accept(session, principal)
        self._shares.add(client, session)
        return session

    def _client_of(self, session_id: str) -> str:
        session = self._sessions.get(session_id)
        return "" if session is None else session.client

    def _add(self, session: HttpSession) -> None:
        self._sessions[session.id] = session
        if self._sweep is None and self._settings.session_idle:
            self._schedule()

    def get(self, session_id: str, principal: Principal) -> HttpSession | None:
        """Return the session with this id, if it belongs to the principal."""
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal or session.over:
            return None
        session.used = time.monotonic()
        self._shares.touch(session)
        return session

    async def find(
        self, call: HttpCall, session_id: bytes, principal: Principal
    ) -> HttpSession | None:
        """Return the session that a request names, restored if necessary."""
        name = session_id.decode("latin-1")
        found = self.get(name, principal)
        # A session of this process is never restored.
        # If `get` does not return it, it belongs to another principal or is being terminated.
        if self.restorer is None or self.closing or name in self._sessions:
            return found
        try:
            return await self.restorer.restore_session(name, call.context, principal)
        except NoShareLeft:
            log.warning("cannot restore a session: too many sessions")
            return None

    async def end(self, session: HttpSession, for_good: bool = True) -> None:
        """End a session and cancel its requests; with `for_good`, delete it from the store."""
        # Removed first, so that requests during the `await` below no longer find the session.
        self._remove(session)
        self.store.forget(session.id)
        if for_good and self.restorer is not None and session.key is not None:
            await self.restorer.forget(session.key)
        if session.served is not None:
            await session.served.close()
            session.served = None  # breaks the reference cycle

    async def close(self, drain: float = 0.0) -> None:
        """Terminate all sessions; stored ones can be restored by the next process.

        Sessions with running requests are terminated when these are answered, after `drain` seconds
        at the latest.
        """
        self.closing = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self.restorer is not None:
            await self.restorer.close()
        # Update the times of last use, so that active sessions do not expire during a restart.
        await self._touch()
        running = []
        for session in list(self._sessions.values()):
            if drain and session.has_requests:
                running.append(self._end_after_requests(session, drain))
            else:
                await self.end(session, for_good=session.over)
        await asyncio.gather(*running)
        if self._ending:
            await asyncio.wait(self._ending)

    async def _end_after_requests(self, session: HttpSession, seconds: float) -> None:
        if session.served is not None:
            await session.served.finish_requests(seconds)
        if session.id in self._sessions:  # the client may have terminated it meanwhile
            await self.end(session, for_good=session.over)

    def _end_soon(self, session: HttpSession, *, for_good: bool = True) -> None:
        self._remove(session)
        self._ending.start(self.end(session, for_good))

    def _remove(self, session: HttpSession) -> None:
        self._sessions.pop(session.id, None)
        self._shares.discard(session)

    def _schedule(self) -> None:
        # A quarter of the idle time, so that sessions end at most 25 % late.
        wait = max(self._settings.session_idle / 4, 0.05)
        self._sweep = asyncio.get_running_loop().call_later(wait, self._expire)

    def _expire(self) -> None:
        oldest = time.monotonic() - self._settings.session_idle
        for session in list(self._sessions.values()):
            if session.used <= oldest and not session.busy:
                log.debug("session %s… was idle for too long", session.id[:6])
                self._end_soon(session, for_good=self.restorer is None)
        if self.restorer is not None:
            self._ending.start(self._touch())
        if self._sessions:
            self._schedule()
        else:
            self._sweep = None

    async def _touch(self) -> None:
        """Update the time of last use in the store, for sessions used since the last call."""
        if self.restorer is not None:
            since, self._touched = self._touched, time.monotonic()
            used = [one for one in self._sessions.values() if one.busy or one.used >= since]
            await self.restorer.touch([one.key for one in used if one.key is not None])
