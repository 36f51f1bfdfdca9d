"""The open connections to one server: limits, idle times, sessions and losses."""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, TypeAlias

from msgspec import UNSET, Raw, structs

from ...config.upstream_settings import UpstreamSettings
from ...errors import ChannelClosed, ServerBusy
from ...interceptor import Exchange
from ...limits import CONNECTIONS_PER_CLIENT
from ...protocol.caller import ANONYMOUS, Caller, Principal, has_roots
from ...protocol.revisions import Revision
from ...transport.background_tasks import BackgroundTasks
from ..memory.server_memory import ServerFacts
from ..server_target import ServerTarget
from ..starts.liveness import LivenessProbe
from ..starts.start_limiter import StartLimiter
from .connection_key import ConnectionKey, key_of_caller, key_of_session
from .connection_opener import ConnectionOpener
from .loss_counter import LossCounter
from .server_events import EventReceiver
from .start_exits import StartExits
from .upstream_connection import UpstreamConnection, remove_subscriber

__all__ = ["OpenConnections"]

# seconds without use after which a connection may be closed in favour of a new one.
# Without this delay, a client that declares different capabilities in each request
# would start a process for each request.
EVICTABLE_AFTER = 5.0
# seconds without a call after which even a connection with sessions may be closed for a new one
QUIET_AFTER = 60.0

log = logging.getLogger("fairlead.gateway")

# Called with a lost connection, the reason, and the sessions that used it.
OnLost: TypeAlias = Callable[[UpstreamConnection, ChannelClosed, list[EventReceiver]], None]


class DefaultConnection(Protocol):
    """The connection that stays open even if no client uses it."""

    async def default_connection(self) -> UpstreamConnection:
        """Return the connection; wait while it is being opened.

        Raises:
            FairleadError: The connection could not be opened.
        """

    @property
    def current(self) -> UpstreamConnection | None:
        """The connection, if it is open now."""

    @property
    def keeps_one(self) -> bool:
        """True if one connection stays open even if no client uses it."""

    def rest(self) -> None:
        """Close the connection until it is needed again."""

    def connections_changed(self) -> None:
        """React to the opening, closing or loss of a connection other than the default one."""


class OpenConnections:
    """The connections of clients to one server, by the key of the clients that may share them."""

    def __init__(
        self, target: ServerTarget, settings: UpstreamSettings, starts: StartLimiter | None = None
    ) -> None:
        """`starts` limits the number of processes that start at once."""
        self.name = target.name
        self.target = target
        # The only copy of the current settings; every user reads them here when it needs them.
        self.settings = settings
        self.opener = ConnectionOpener(
            target, lambda: self.settings, starts or StartLimiter(), self._lost
        )
        self.default: DefaultConnection | None = None
        self.on_lost: OnLost | None = None
        # called with a session that must release its connection
        self.on_release: Callable[[EventReceiver, UpstreamConnection], None] | None = None
        self.evictable_after = EVICTABLE_AFTER
        # connections that serve only one session, each with a key of that session
        self.own: dict[UpstreamConnection, ConnectionKey] = {}
        self._connections: dict[ConnectionKey, list[UpstreamConnection]] = {}
        # the revision that the server chose, by the revision that a client proposed
        self._agreed: dict[str, str] = {}
        self._timers: dict[UpstreamConnection, asyncio.TimerHandle] = {}
        self._retiring = BackgroundTasks()
        self._next_release: asyncio.TimerHandle | None = None
        self.facts = ServerFacts()
        self._exits = StartExits()
        # called when facts about the server change
        self.on_facts: Callable[[ServerFacts], None] = lambda facts: None
        self._liveness = LivenessProbe(lambda: self.settings.hang_timeout)
        self.losses = LossCounter(target.name)
        self._reserved: Counter[Principal] = Counter()  # connections that are being opened

    def update_settings(self, settings: UpstreamSettings) -> None:
        """Use new settings for calls and connections from now on."""
        before, self.settings = self.settings, settings
        if settings.era != before.era:
            self.opener.forget_eras()
            self.recall(self.facts)
        for connection in self.connections:
            self._look_after(connection)
        self._plan_release(time.monotonic())

    @property
    def connections(self) -> list[UpstreamConnection]:
        """All connections except the default one."""
        shared = (one for several in self._connections.values() for one in several)
        return [*shared, *self.own]

    @property
    def all_connections(self) -> list[UpstreamConnection]:
        """All connections, the default one first if it is open."""
        default = self._current_default
        return self.connections if default is None else [default, *self.connections]

    @property
    def _current_default(self) -> UpstreamConnection | None:
        return None if self.default is None else self.default.current

    def _shared(self, key: ConnectionKey) -> UpstreamConnection | None:
        """Return an open connection of this key."""
        for connection in self._connections.get(key, ()):
            if connection.alive:
                return connection
        return None

    # Facts about the server

    def _learn_revision(self, key: ConnectionKey, chosen: Revision) -> None:
        """Record the revision that the server chose for a connection with this key."""
        if key.revision:
            self._agreed[key.revision] = chosen.value

    def _as_agreed(self, key: ConnectionKey) -> ConnectionKey:
        """Return a key with the revision that the server will choose, if known."""
        agreed = self._agreed.get(key.revision, key.revision)
        return key if agreed == key.revision else structs.replace(key, revision=agreed)

    def _key_of_caller(self, caller: Caller) -> ConnectionKey:
        return self._as_agreed(key_of_caller(caller.capabilities, caller.principal))

    def _key_of_session(self, caller: Caller, introduction: Raw) -> ConnectionKey:
        return self._as_agreed(key_of_session(caller, introduction))

    def recall(self, facts: ServerFacts) -> None:
        """Set the facts about the server that are known from an earlier run."""
        self.facts = facts
        if facts.no_handshake and self.settings.era == "auto":
            self.opener.speaks_handshake = False

    def _learn(self, **facts: bool) -> None:
        new = structs.replace(self.facts, **facts)
        if new != self.facts:
            self.facts = new
            self.on_facts(new)

    def forget_exits(self) -> None:
        """Find out again whether the server can run twice."""
        self._exits = StartExits()
        self._learn(is_single=False)

    # Limits

    @contextlib.contextmanager
    def _reserve(self, principal: Principal) -> Iterator[None]:
        """Make room for a connection of `principal`, and count it while it is being opened.

        Raises:
            ServerBusy: All connections are in use.
        """
        self._make_room(principal)
        self._reserved[principal] += 1
        try:
            yield
        finally:
            self._reserved[principal] -= 1
            if not self._reserved[principal]:
                del self._reserved[principal]

    def trim(self) -> None:
        """Close an unused connection if the limit is exceeded with the default connection."""
        with contextlib.suppress(ServerBusy):
            self._make_room(ANONYMOUS, more=0)

    def _make_room(self, principal: Principal, more: int = 1) -> None:
        """Close an unused connection if `principal` could not open another one otherwise.

        An authenticated principal may have at most half of the connections. If the limit of all
        connections is reached, a connection of the principal with the most connections is closed.

        Raises:
            ServerBusy: All connections are in use.
        """
        most = self.settings.max_connections
        used = sum(len(several) for several in self._connections.values())
        used += self._reserved.total()
        if self.target.is_process:
            used += len(self.own) + (self._current_default is not None)
        candidates = [one for one in self.connections if not one.stateless]
        default = self._current_default
        if default is not None and self.target.is_process:
            candidates.append(default)
        if principal is not ANONYMOUS:
            own = [one for one in candidates if one.principal == principal]
            held = len(own) + self._reserved[principal]
            if held >= max(1, most // 2):
                CONNECTIONS_PER_CLIENT.hit()
                self._retire_one(own, held)
                return
        if used + more <= most:
            return
        shares = Counter(one.principal for one in candidates)
        most_held = max(shares.values(), default=0)
        self._retire_one([one for one in candidates if shares[one.principal] == most_held], used)

    def _retire_one(self, connections: list[UpstreamConnection], used: int) -> None:
        """Close the least recently used of these connections.

        Raises:
            ServerBusy: All of them are in use.
        """
        now = asyncio.get_running_loop().time()
        # A connection with sessions may be closed after a long time without calls.
        # The next request of such a session opens another connection.
        ready = {one: one.used + QUIET_AFTER for one in connections if one.quiet}
        # A session that has made no call has left no state, and its client may have vanished.
        unused = [one for one in connections if one.idle or (one.abandoned and not one.called)]
        ready |= {one: one.used + self.evictable_after for one in unused}
        evictable = [one for one, when in ready.items() if when <= now]
        if evictable:
            idle = [one for one in evictable if one.idle]
            self._retire(min(idle or evictable, key=lambda one: one.used))
            return
        why = f"is busy: {used} connections to it are in use. Try again later"
        wait = min(ready.values(), default=now + QUIET_AFTER) - now
        raise ServerBusy(f"{self.name} {why}", public=why, retry_after=round(wait, 1))

    # Idle connections

    def _look_after(self, connection: UpstreamConnection) -> None:
        """Close a connection once it has not been used for a while.

        Sessions of clients that disappeared may still refer to it. A client that continues gets
        another connection.
        """
        self._stop_looking_after(connection)
        loop, settings = asyncio.get_running_loop(), self.settings
        longest = max(settings.idle_close, settings.idle_close_used)
        if not longest or connection.stateless:
            return

        def look() -> None:
            limit = settings.idle_close_used if connection.called else settings.idle_close
            left = connection.used + limit - loop.time()
            unused = connection.idle or connection.abandoned
            passed = limit and left <= 0
            if passed and connection.alive and unused and not self._is_last(connection):
                self._retire(connection)
            elif connection.alive:
                # The limit changes with the first call, also from or to "never".
                delay = left if left > 0 else limit or longest
                self._timers[connection] = loop.call_later(delay, look)

        look()

    def _stop_looking_after(self, connection: UpstreamConnection) -> None:
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _retire(self, connection: UpstreamConnection) -> None:
        if self.default is not None and connection is self.default.current:
            self.default.rest()
            return
        self._forget(connection)
        self._retiring.start(connection.close())
        self._ended()

    def retire_unused(self, connection: UpstreamConnection) -> None:
        """Close a connection that was opened for lists only, as soon as no client uses it."""
        if connection.called or connection.stateless or connection not in self.connections:
            return
        if connection.idle:
            self._retire(connection)
        elif connection.on_idle is None:  # otherwise it is closed in any case
            connection.on_idle = partial(self.retire_unused, connection)

    def _belongs_to(
        self, connection: UpstreamConnection, session: EventReceiver | None, in_call: bool
    ) -> None:
        """Reserve a connection for the session or the call whose roots the server requests.

        Servers keep the first response, so other clients would work in the folders of this one.
        """
        if session is None:
            self._learn(asks_roots=True)
            self.end_after_call(connection)
            return
        caller = session.peer.conversation.peer
        if caller is None or not has_roots(caller.capabilities):
            return  # the session has no roots that other sessions could receive
        if not self.facts.asks_roots:
            log.info("%s requests roots; sessions with roots get their own process", self.name)
        early = self.facts.asks_roots_early or not in_call
        self._learn(asks_roots=True, asks_roots_early=early)
        if connection in self.own or not self.target.is_process:
            return
        key = self._forget(connection)
        if key is None:
            return  # the connection is being closed
        self.own[connection] = structs.replace(key, session=session.number)
        self._look_after(connection)
        for other in [one for one in connection.sessions if one is not session]:
            del connection.sessions[other]
            other.detach()  # the next request of that session gets another connection
            for uri in list(connection.uris):
                remove_subscriber(connection, uri, other)

    def end_after_call(self, connection: UpstreamConnection) -> None:
        """Let no other client use a connection, and close it at the end of the current call."""
        if (key := self._forget(connection)) is not None:
            self.own[connection] = key
            connection.on_idle = partial(self._retire, connection)
            self._look_after(connection)

    def reserved_connection(self, exchange: Exchange) -> UpstreamConnection | None:
        """Return the connection on which a parked call continues, if no other call may use it."""
        if not self.own or exchange.head.request_state is UNSET:
            return None
        key = self._key_of_caller(exchange.caller)
        return next((one for one, its in self.own.items() if its == key and one.alive), None)

    def _ended(self) -> None:
        if self.default is not None and not self.opener.closed:
            self.default.connections_changed()

    def _join(self, connection: UpstreamConnection, session: EventReceiver) -> UpstreamConnection:
        """Add a session to a connection, and return the connection."""
        connection.sessions[session] = None
        if limit := self.settings.idle_release:
            self._plan_release(time.monotonic() + limit)
        return connection

    async def leave(self, session: EventReceiver, connection: UpstreamConnection) -> None:
        """Remove a session from its connection.

        Close the connection if it served only this session.
        """
        connection.sessions.pop(session, None)
        if connection in self.own or self._is_surplus(connection):
            self._forget(connection)
            await connection.close()
            self._ended()
        else:
            connection.used = connection.now()

    def _is_surplus(self, connection: UpstreamConnection) -> bool:
        """Return True if an idle connection is not the first of its key and may be closed."""
        if not connection.idle or connection.stateless or connection is self._current_default:
            return False
        return not any(several[0] is connection for several in self._connections.values())

    def _plan_release(self, when: float) -> None:
        left = when - time.monotonic()
        timer, loop = self._next_release, asyncio.get_running_loop()
        if timer is None or timer.when() > loop.time() + left:
            if timer is not None:
                timer.cancel()
            self._next_release = loop.call_later(left, self._release_sessions)

    def _release_sessions(self) -> None:
        """Release the connections of sessions whose clients have probably vanished."""
        self._next_release = None
        limit, now = self.settings.idle_release, time.monotonic()
        for connection in self.all_connections if limit else ():
            for session in list(connection.sessions):
                since = session.peer.channel.idle_since
                left = limit if since is None else since + limit - now
                if left > 0:
                    # Sessions are examined at most twenty times within the limit.
                    self._plan_release(now + max(left, limit / 20))
                elif self.on_release is not None:
                    self.on_release(session, connection)

    def _is_last(self, connection: UpstreamConnection) -> bool:
        """Return True for the only open connection to a server that is not lazy."""
        if self.default is None or not self.default.keeps_one:
            return False
        return self.default.current is None and self.connections == [connection]

    def _check_hang(self, connection: UpstreamConnection) -> None:
        """Check whether a server is busy or hangs after a caller stopped waiting for it."""
        if not self.opener.closed:
            self._liveness.check_hang(connection.peer, partial(self._hangs, connection))

    def _hangs(self, connection: UpstreamConnection, public: str) -> None:
        """Terminate a process that hangs. Later requests get another process."""
        why = f"the server {public}"

        async def end() -> None:
            await connection.peer.close(why, public=public)
            await connection.close()

        self._retiring.start(end())
        self._lost(connection, ChannelClosed(why, public=public))

    def _lost(self, connection: UpstreamConnection, end: ChannelClosed) -> None:
        key = self._forget(connection)
        # Only the exit of a process counts as a loss, unless Fairlead terminated the process.
        if key is not None and end.exit_code is not None and not connection.ending:
            self.losses.count(key)
        sessions = list(connection.sessions)
        for session in sessions:
            session.detach()
        connection.sessions.clear()
        if self.on_lost is not None and not self.opener.closed:
            self.on_lost(connection, end, sessions)
        self._ended()

    def _check_suspended(self, key: ConnectionKey) -> None:
        """Check that processes of this key were not lost too often recently.

        Raises:
            ConnectFailed: The key is suspended.
        """
        # Dead connections count too, even if their loss is not reported yet.
        own = (one for one, its_key in self.own.items() if its_key == key)
        dead = sum(not one.alive for one in (*self._connections.get(key, ()), *own))
        self.losses.check(key, dead)

    def _forget(self, connection: UpstreamConnection) -> ConnectionKey | None:
        """Remove a connection; return the key that it had."""
        self._stop_looking_after(connection)
        own_key = self.own.pop(connection, None)
        if own_key is not None:
            return own_key
        for key, several in list(self._connections.items()):
            if connection in several:
                several.remove(connection)
                if not several:
                    del self._connections[key]
                return key
        return None

    async def close(self) -> None:
        """Close all connections."""
        self.opener.closed = True
        self._liveness.close()
        for timer in (*self._timers.values(), self._next_release):
            if timer is not None:
                timer.cancel()
        closing = (connection.close() for connection in self.connections)
        await asyncio.gather(*closing, *self._retiring, return_exceptions=True)
