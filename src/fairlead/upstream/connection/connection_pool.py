"""The connections to one server, by the clients that may share them.

A stateless server has one connection for all clients: the default connection, if there is one.
A server of the handshake era has separate connections for each `ConnectionKey`, because
capabilities are negotiated once, when a connection is opened. A key may have several of them, for
example because a call has waited too long for its turn. The default connection of such a server
also serves anonymous clients without capabilities.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Hashable
from functools import partial

from msgspec import Raw, structs

from ...config.upstream_settings import UpstreamSettings
from ...errors import ChannelClosed, ConnectFailed, FairleadError, HttpError, RpcError
from ...protocol.caller import ANONYMOUS, Caller, can_be_asked, has_roots
from ...protocol.conversation.era_probe import RefusedInitialize, judge_refused_initialize
from ...protocol.identity.client_capabilities import for_handshake_server
from ...protocol.public_reason import public_reason
from ...transport import timeouts
from ..server_target import ServerTarget
from ..starts.start_limiter import StartLimiter
from ..startup_wait import StillStarting
from .caller_subscriptions import CallerSubscriptions
from .connection_key import STATELESS, ConnectionKey
from .connection_opener import introduction_of
from .open_connections import OpenConnections
from .server_events import EventReceiver
from .start_exits import is_named
from .upstream_connection import Turn, UpstreamConnection, first_turn

__all__ = ["UpstreamPool"]

NO_SESSION = 0  # a number that no session has

log = logging.getLogger("fairlead.gateway")


class UpstreamPool(OpenConnections):
    """Pool that selects or opens connections for requests and sessions, and closes idle ones."""

    def __init__(
        self, target: ServerTarget, settings: UpstreamSettings, starts: StartLimiter | None = None
    ) -> None:
        """`starts` limits the number of processes that start at once."""
        super().__init__(target, settings, starts)
        self.on_connection: Callable[[UpstreamConnection], None] = lambda connection: None
        self._opening: dict[Hashable, asyncio.Task[UpstreamConnection]] = {}
        # listen streams of stateless clients, whose calls may use other connections
        self.callers = CallerSubscriptions(lambda: self.connections, self.serves)
        self._trying_handshake = asyncio.Lock()

    # Open connections, for callers that must not wait

    @property
    def stateless_connection(self) -> UpstreamConnection | None:
        """The connection that all stateless requests share, or None if it is not open."""
        if self.default is not None:
            current = self.default.current
            return current if current is not None and current.stateless else None
        return self._shared(STATELESS)

    def handshake_connection(self, caller: Caller) -> UpstreamConnection | None:
        """Return the open connection for a stateless request to a server of the handshake era, or
        None.
        """
        if self.opener.speaks_stateless is not False:
            return None
        default = None if self.default is None else self.default.current
        if default is not None and self._may_use_default(default, caller, in_session=False):
            return default
        return self._shared(self._key_of_caller(caller))

    def serves(self, connection: UpstreamConnection, caller: Caller) -> bool:
        """Return True if calls of a stateless caller may use this connection of the handshake
        era.
        """
        return connection in self._connections.get(self._key_of_caller(caller), ())

    # Stateless callers

    async def for_caller(self, caller: Caller) -> UpstreamConnection:
        """Return a connection for a request without a session.

        Raises:
            FairleadError: The server cannot be reached.
        """
        try:
            connection = await self._for_caller(caller)
        except (ChannelClosed, ConnectFailed) as exc:
            connection = await self._only_process(exc, caller)
        connection.activate()  # the session that opened it may not have completed the handshake
        return connection

    async def _for_caller(self, caller: Caller) -> UpstreamConnection:
        # A client with an open connection does not wait for a default connection that was lost.
        connection = self.handshake_connection(caller)
        if connection is not None:
            return connection
        default = await self._default_for(caller, in_session=False)
        if default is not None:
            return default
        opener, key = self.opener, self._key_of_caller(caller)
        if opener.speaks_stateless is not False:
            connection = self._shared(STATELESS)
            if connection is None:
                introduction = introduction_of(for_handshake_server(caller.capabilities), caller)
                connection = await self._once(
                    STATELESS,
                    caller,
                    lambda: opener.find_out(introduction, key, others=self._others),
                    key,
                )
            if connection.stateless or connection in self._connections.get(key, ()):
                return connection
        # Another client may have opened a connection with this key while the era was determined.
        connection = self._shared(self._key_of_caller(caller))
        if connection is None:
            try:
                connection = await self._once(key, caller, self._greet(caller, key), key)
            except (RpcError, HttpError) as exc:
                if not opener.doubts_era(exc, others=self._others):
                    raise
                return await self._for_caller(caller)
        return connection

    def _greet(
        self, caller: Caller, key: ConnectionKey
    ) -> Callable[[], Awaitable[UpstreamConnection]]:
        introduction = introduction_of(for_handshake_server(caller.capabilities), caller)
        return lambda: self.opener.open(introduction, key, stateless=False, others=self._others)

    async def for_asking(self, caller: Caller) -> tuple[UpstreamConnection, Turn | None]:
        """Return a connection for a call during which the server may send requests to the client.

        If calls share a stream, the call gets the connection exclusively, and the caller of this
        method must release the returned turn.

        Raises:
            FairleadError: The server cannot be reached.
            TimeoutError: All connections were in use for too long.
        """
        connection = await self.for_caller(caller)
        alone = self.facts.asks_roots and has_roots(caller.capabilities)
        if connection.stateless or (connection.correlates_calls and not alone):
            return connection, None
        # Without a session, clients cannot be told apart, so each call is a separate owner.
        owner = object()
        if connection is self._current_default:
            return connection, await connection.turns.take(owner, self.settings.turn_timeout)
        key, room = self._key_of_caller(caller), True
        wait = self.settings.turn_wait
        while True:
            alive = [one for one in self._connections.get(key, ()) if one.alive]
            if alive:
                try:
                    place, turn = await first_turn([one.turns for one in alive], owner, wait)
                except TimeoutError:
                    if not room:
                        raise
                else:
                    # The connection may be lost, or reserved for the call that had its last turn.
                    if alive[place].alive and self.serves(alive[place], caller):
                        return alive[place], turn
                    turn.release()
                    alive[place].report_idle()
                    continue
            try:
                number = len(alive)
                await self._once((key, number), caller, self._greet(caller, key), key)
            except FairleadError:
                if not alive:
                    raise
                # the limit of connections is reached, so wait for a turn on an open connection
                room, wait = False, self.settings.turn_timeout

    # Sessions of the handshake era

    async def for_session(
        self, session: EventReceiver, introduction: Raw, caller: Caller
    ) -> UpstreamConnection:
        """Return the connection of a session; `introduction` are the params of its `initialize`.

        Raises:
            RpcError: The server refused `initialize`.
            FairleadError: The server cannot be reached.
        """
        return self._join(await self._for_session(introduction, caller, session.number), session)

    async def another_for_session(
        self, session: EventReceiver, introduction: Raw, caller: Caller
    ) -> UpstreamConnection:
        """Return another connection for a session, because calls of other sessions occupy its own.

        Raises:
            FairleadError: The limit of connections is reached, or a connection cannot be opened.
        """
        key = self._key_of_session(caller, introduction)
        alive = [one for one in self._connections.get(key, ()) if one.alive]
        free = next((one for one in alive if one.turns.free), None)
        if free is None:
            free = await self._once(
                (key, len(alive)), caller, self._introduce(introduction, key), key
            )
        return self._join(free, session)

    async def _for_session(
        self, introduction: Raw, caller: Caller, number: int
    ) -> UpstreamConnection:
        default = await self._default_for(caller, in_session=True)
        if default is not None:
            return default
        if self.opener.speaks_handshake is None and self.opener.speaks_stateless:
            # One process is started to find out if the server has a handshake. Other sessions wait.
            async with self._trying_handshake:
                return await self._try_handshake(introduction, caller, number)
        return await self._try_handshake(introduction, caller, number)

    async def _try_handshake(
        self, introduction: Raw, caller: Caller, number: int
    ) -> UpstreamConnection:
        if self.opener.speaks_handshake is False:
            return await self._stateless_for_session(caller)
        try:
            return await self._handshake_for_session(introduction, caller, number)
        except (RpcError, HttpError) as exc:
            spoken = self.opener.speaks_handshake
            if spoken and not self.opener.doubts_era(exc, others=self._others):
                raise
            return await self._without_handshake(exc, caller)
        except (ChannelClosed, ConnectFailed) as exc:
            return await self._only_process(exc, caller)

    async def _handshake_for_session(
        self, introduction: Raw, caller: Caller, number: int
    ) -> UpstreamConnection:
        shared = self.target.is_process and self.settings.share != "session"
        if not shared or (self.facts.asks_roots and has_roots(caller.capabilities)):
            return await self._of_its_own(introduction, caller, number)
        key = self._key_of_session(caller, introduction)
        alive = [one for one in self._connections.get(key, ()) if one.alive]
        if has_roots(caller.capabilities):
            # Before its first call, a connection may still receive a request for the roots of its
            # session, so other sessions do not join it.
            alive = [one for one in alive if one.called or one.idle]
        if alive:
            return min(alive, key=lambda one: (not one.turns.free, len(one.sessions)))
        # Therefore a session with roots does not share a connection that another is opening.
        place = (key, object()) if has_roots(caller.capabilities) else key
        return await self._once(place, caller, self._introduce(introduction, key), key)

    def _introduce(
        self, introduction: Raw, key: ConnectionKey
    ) -> Callable[[], Awaitable[UpstreamConnection]]:
        return lambda: self.opener.open_for_session(introduction, key, others=self._others)

    async def _of_its_own(
        self, introduction: Raw, caller: Caller, number: int
    ) -> UpstreamConnection:
        shared_key = self._key_of_session(caller, introduction)
        key = structs.replace(shared_key, session=number)
        self._check_suspended(key)
        # Only processes are counted: sessions over HTTP are cheap, and the endpoint counts them.
        room = self._reserve(caller.principal)
        with room if self.target.is_process else contextlib.nullcontext():
            connection = await self._introduce(introduction, shared_key)()
        if connection.stateless:
            return self._filed(connection, STATELESS)
        connection.opened_for = caller
        self.own[connection] = key
        self._opened(connection)
        return connection

    async def _stateless_for_session(self, caller: Caller) -> UpstreamConnection:
        connection = await self.for_caller(caller)
        if not connection.stateless:
            raise ConnectFailed(
                f"{self.name} supports neither the handshake nor the stateless era",
                public="supports neither the handshake nor the stateless era",
            )
        return connection

    async def _without_handshake(
        self, refusal: RpcError | HttpError, caller: Caller
    ) -> UpstreamConnection:
        """Return a connection to a server that refused `initialize`, if it is stateless.

        Raises:
            RpcError, HttpError: The server is not stateless or cannot be reached; its refusal is
            raised.
        """
        refused = judge_refused_initialize(refusal)
        # A process with an unclear refusal was probed already.
        asked = self.target.is_process and refused is RefusedInitialize.UNCLEAR
        if self.settings.era != "auto" or asked or refused is RefusedInitialize.FOR_THIS_CLIENT:
            raise refusal
        connection = self.stateless_connection
        if connection is not None:
            # with any other refusal, the server may still accept other clients
            if refused is RefusedInitialize.NO_HANDSHAKE:
                self.opener.speaks_handshake = False
                self._learn(no_handshake=True)
            return connection
        with self._reserve(caller.principal):
            connection = await self.opener.open_after_refusal(
                caller, self._key_of_caller(caller), refusal
            )
        return self._filed(connection, STATELESS)

    # Comparisons of lists

    async def for_comparison(
        self, caller: Caller, introduction: Raw | None, limit: float
    ) -> UpstreamConnection:
        """Return a connection with the capabilities of this client.

        If a process has to be started for it, it starts after all others that wait for a start.

        Raises:
            FairleadError: The server cannot be reached.
            TimeoutError: The connection could not be opened within `limit` seconds.
        """
        if self.target.is_process:
            await self.opener.starts.wait_for_others()
        async with timeouts.timeout(limit):
            if caller.stateless or introduction is None:
                return await self.for_caller(caller)
            return await self._for_session(introduction, caller, NO_SESSION)

    # The default connection

    async def _default_for(self, caller: Caller, *, in_session: bool) -> UpstreamConnection | None:
        """Return the default connection, if this client may use it."""
        if self.default is None or self._never_uses_default(caller, in_session):
            return None
        try:
            connection = await self.default.default_connection()
        except FairleadError as exc:
            # A second wait would exceed the time limit for starts.
            own = self.opener.speaks_stateless is False and not isinstance(exc, StillStarting)
            if not own or self._shares_handshake_default(caller):
                raise
            return None  # this client needs a connection of its own in any case
        return connection if self._may_use_default(connection, caller, in_session) else None

    def _never_uses_default(self, caller: Caller, in_session: bool) -> bool:
        """Return True if a client may not use the default connection, whatever its era."""
        if not in_session or self._shares_all(caller) or self.opener.speaks_handshake is False:
            return False
        if self.settings.share == "session" or self.opener.speaks_stateless:
            return True
        return not self._shares_handshake_default(caller)

    def _may_use_default(
        self, connection: UpstreamConnection, caller: Caller, in_session: bool
    ) -> bool:
        if self._shares_all(caller):
            return True
        if connection.stateless:
            # A client with a session uses the handshake era if possible,
            # because the server can send requests to the client in that era only.
            return not in_session or self.opener.speaks_handshake is False
        if in_session and self.settings.share == "session":
            return False
        return self._shares_handshake_default(caller)

    def _shares_handshake_default(self, caller: Caller) -> bool:
        """Return True if a client may use a default connection of the handshake era."""
        if self._shares_all(caller):
            return True
        # State that a client changes in a handshake-era server must not affect other principals.
        return caller.principal is ANONYMOUS and not can_be_asked(caller.capabilities)

    def _shares_all(self, caller: Caller) -> bool:
        if self.settings.share == "all":
            return True
        exits = self._exits
        if not self.facts.is_single and not (exits.capabilities and exits.concern(caller)):
            return False
        return not is_named(caller)

    async def _only_process(
        self, exc: ChannelClosed | ConnectFailed, caller: Caller
    ) -> UpstreamConnection:
        """Return the default connection, if a second process exited during its start.

        Some servers cannot run twice, because they use a fixed port, a lock or a profile.
        Authenticated clients are not moved to the default connection: a client whose capabilities
        make its process exit must not get a process that others use. The owner can set `share =
        "all"` for such servers.

        Raises:
            ChannelClosed, ConnectFailed: The client may not use another process; `exc` is raised
            again.
        """
        default = self._current_default
        if exc.exit_code is None or not self.target.is_process or default is None:
            raise exc
        if is_named(caller):
            exc.public += '; if it cannot run twice, set share = "all" for it'
            raise exc
        if self._exits.has_run_twice:
            raise exc  # the server can run twice, so the client's capabilities are the cause
        is_single = self._exits.count(caller)
        log.warning(
            "%s: a second process exited during its start (%s); the first serves %s",
            *(self.name, public_reason(exc)),
            "all clients" if is_single else "clients with the same capabilities",
        )
        if is_single:
            self._learn(is_single=True)
        return default

    # Opening

    @property
    def _others(self) -> bool:
        return self._current_default is not None or any(one.alive for one in self.connections)

    async def _once(
        self,
        place: Hashable,
        caller: Caller,
        make: Callable[[], Awaitable[UpstreamConnection]],
        key: ConnectionKey,
    ) -> UpstreamConnection:
        """Open one connection for all concurrent waiters. Cancelling one waiter does not affect the
        others.
        """
        task = self._opening.get(place)
        if task is None:
            task = asyncio.ensure_future(self._made(caller, make, key))
            self._opening[place] = task
            task.add_done_callback(lambda _: self._opening.pop(place, None))
        return await asyncio.shield(task)

    async def _made(
        self,
        caller: Caller,
        make: Callable[[], Awaitable[UpstreamConnection]],
        key: ConnectionKey,
    ) -> UpstreamConnection:
        self._check_suspended(key)
        with self._reserve(caller.principal):
            connection = await make()
        connection.opened_for = caller
        if connection.stateless:
            return self._filed(connection, STATELESS)
        if connection.agreement is not None:
            self._learn_revision(key, connection.agreement.revision)
        filed = self._filed(connection, self._as_agreed(key))
        await self.callers.opened(filed, self.settings.connect_timeout)
        return filed

    def _filed(self, connection: UpstreamConnection, key: ConnectionKey) -> UpstreamConnection:
        if connection.stateless and self.opener.speaks_handshake is False:
            self._learn(no_handshake=self.settings.era == "auto")
        if connection.stateless and (there := self.stateless_connection) is not None:
            # Another connection was opened before the server was known to be stateless: close it.
            self._retire(connection)
            return there
        self._connections.setdefault(key, []).append(connection)
        self._opened(connection)
        return connection

    def _opened(self, connection: UpstreamConnection) -> None:
        if self._current_default is not None:
            self._exits.second_opened()
        connection.on_roots = partial(self._belongs_to, connection)
        if self.target.is_process:  # only a child process can be terminated if it hangs
            connection.on_unanswered = partial(self._check_hang, connection)
        self._look_after(connection)
        if self.default is not None:
            self.default.connections_changed()
        self.on_connection(connection)

    async def close(self) -> None:
        """Close all connections, including connections that are being opened."""
        self.opener.closed = True
        tasks = list(self._opening.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await super().close()
