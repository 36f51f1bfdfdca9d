"""One configured server: its connections, its lists and the desired state.

An `Upstream` keeps a default connection, on which it requests lists and pings the server. Clients
that may not share this connection get others from the pool. Manager and gateway use the same
object.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ..client import MCPClient, MCPClientConfig
from ..client.callbacks import Callbacks
from ..client.client_config import version_for_era
from ..client.connection.connect import ConnectionAttempt
from ..client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ..config.server_spec import ServerSpec
from ..config.stored_logins import authorizer_for, login_arguments
from ..config.upstream_settings import UpstreamSettings
from ..errors import ChannelClosed, FairleadError
from ..interceptor import Exchange, Handler, Interceptor
from ..protocol.caller import principal_name
from ..protocol.revisions import Revision
from ..protocol.targets.list_kind import ListKind
from ..transport import timeouts
from ..wire import Notification
from .call_health import CallHealth
from .connection.connection_key import ConnectionKey, declared_capabilities, describe_key
from .connection.connection_pool import UpstreamPool
from .connection.upstream_connection import UpstreamConnection
from .connection_keeper import ConnectionKeeper, State
from .connection_tasks import ConnectionTasks, DesiredState
from .list_variants import ListVariants
from .open_client import connect_timeout_error, declaring_callbacks, open_client
from .server_lists import ServerLists
from .server_target import target_for
from .starts.start_limiter import StartLimiter
from .startup_wait import StartupWait, StillStarting

if TYPE_CHECKING:
    from ..auth.storage.credential_store import CredentialStore
    from ..transport.http.client.request_authorizer import RequestAuthorizer

__all__ = ["Upstream"]

log = logging.getLogger("fairlead.manager")


class Upstream(ConnectionKeeper):
    """Owner of all connections to one configured server."""

    def __init__(
        self,
        name: str,
        spec: ServerSpec,
        settings: UpstreamSettings,
        *,
        starts: StartLimiter,
        kinds: Iterable[ListKind] = (ListKind.TOOLS,),
        for_client: bool = True,
        lazy: bool = False,
        config: MCPClientConfig | None = None,
        callbacks: Callbacks | None = None,
        changed: Callable[["Upstream"], None] = lambda upstream: None,
        told: Callable[[str, str, dict[str, Any]], None] = lambda name, method, params: None,
        resolved: Callable[[MCPServerEntry], None] = lambda entry: None,
        auth_storage: "CredentialStore | None" = None,
    ) -> None:
        """The settings of the entry in `spec` replace those in `settings`.

        `kinds` are the lists to keep. With `for_client`, the default connection is used through its
        `MCPClient`. `changed` is called after every new state or list, `told` with every
        notification, and `resolved` with the entry of every new connection before its first
        message. `auth_storage` contains the logins; by default it is the user's own storage.
        """
        is_process = isinstance(spec.entry, MCPStdioServerConfig)
        # A program with a manager decides itself when to try again; a gateway runs unattended.
        super().__init__(
            *(name, starts), is_process=is_process, lazy=lazy, retries_start=not for_client
        )
        self.spec = spec
        self.lists = ServerLists(kinds, for_client=for_client)
        self.variants = ListVariants()
        self.lists.on_changed = lambda kind: changed(self)
        self.loading = False  # True while the lists of a new connection are being requested
        self.latency: float | None = None  # seconds that connecting took
        self.wanted = DesiredState()
        self._auth_storage = auth_storage
        self._login = login_arguments(name, spec.entry, spec.source)
        target = target_for(spec.entry, name, resolve=self._resolved, credentials=self._credentials)
        # The pool keeps the current settings, for itself and for this object.
        self.pool = UpstreamPool(target, structs.replace(settings, **spec.own_settings), starts)
        self._config = config or MCPClientConfig()
        self._callbacks: Callbacks = callbacks or {}
        self._changed = changed
        self._told = told
        self._on_resolved = resolved
        self._tasks: ConnectionTasks | None = None
        self.health: CallHealth | None = None  # counts the calls of clients
        self._serves_clients = False
        self._default: UpstreamConnection | None = None

    @property
    def settings(self) -> UpstreamSettings:
        """The current settings of this server."""
        return self.pool.settings

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """The tools that the server listed last; None before the first list."""
        return self.lists.tools

    @property
    def tools_error(self) -> BaseException | None:
        """The error of the last `tools/list`, or None if it succeeded."""
        return self.lists.errors.get(ListKind.TOOLS)

    @property
    def instructions(self) -> str | None:
        """The instructions of the server for models, while it is connected."""
        return None if self.client is None else self.client.instructions

    @property
    def revision(self) -> Revision | None:
        """The revision of an open connection, of the default connection if it is open."""
        found = (one.agreement for one in self.pool.all_connections if one.alive)
        return next((one.revision for one in found if one is not None), None)

    def describe_connections(self) -> list[dict[str, Any]]:
        """Return the connections that clients use, as plain data for the owner of the gateway."""
        return [
            {
                "default": one is self._default,
                "revision": None if one.agreement is None else one.agreement.revision.value,
                "capabilities": declared_capabilities(one),
                "principal": principal_name(one.principal),
                "exclusive": one in self.pool.own,  # reserved for one session
                "sessions": len(one.sessions),
                "calls": len(one.calls),
                "idle_s": round(max(one.now() - one.used, 0.0), 1),
            }
            for one in self.pool.all_connections
        ]

    async def reconnect(self) -> None:
        """Connect again, also after a suspension of the server or of some of its clients.

        Raises:
            FairleadError: The server could not be connected.
        """
        self.pool.losses.clear()
        self.pool.forget_exits()
        await super().reconnect()

    def describe_suspended(self) -> list[dict[str, Any]]:
        """Return the suspended connection keys as plain data for the owner of the gateway."""
        keys = [{"default": False, **key} for key in self.pool.losses.describe_suspended()]
        if self.state != "suspended" or self.status != "connected":
            return keys
        # Only clients of the default connection are suspended, until a user reconnects the server.
        facts = {"default": True, "losses": len(self._losses), "seconds": None}
        return [{**describe_key(ConnectionKey(stateless=False)), **facts}, *keys]

    # Requests of the program on the default connection

    async def subscribe(self, uri: str) -> None:
        """Subscribe to a resource on the default connection, also after a reconnect.

        Raises:
            FairleadError: The server is not connected, or refused the request.
        """
        client = await self.ready()
        await client.subscribe(uri)
        # Only a subscription that the server accepted is restored.
        self.wanted.uris[uri] = None

    async def unsubscribe(self, uri: str) -> None:
        """Cancel a subscription on the default connection."""
        self.wanted.uris.pop(uri, None)
        if self.client is not None:
            await self.client.unsubscribe(uri)

    async def set_log_level(self, level: str) -> None:
        """Request log messages on the default connection, also after a reconnect."""
        self.wanted.log_level = level
        if self.client is not None:
            await self.client.set_log_level(level)

    def refresh_lists(self) -> None:
        """Request all lists again, in the background."""
        if self._tasks is not None:
            self._tasks.refresh()

    def keep_lists(self, kinds: Iterable[ListKind]) -> None:
        """Keep additional lists, and request the new ones in the background."""
        new = self.lists.add_kinds(kinds)
        if self._tasks is not None and new:
            self._tasks.request(new)

    def update_settings(self, settings: UpstreamSettings, spec: ServerSpec) -> None:
        """Use new settings for calls and connections from now on.

        The settings of the entry in `spec` take precedence. Its entry must be unchanged.
        """
        self.spec = spec
        settings = structs.replace(settings, **spec.own_settings)
        if settings == self.settings:
            return
        self.pool.update_settings(settings)
        if self._tasks is not None:
            self._tasks.settings_changed()
        self._wake.set()  # the idle limit may have changed

    # Requests of clients

    def serve_clients(
        self, interceptors: Sequence[Interceptor], health: CallHealth | None = None
    ) -> None:
        """Let clients use the default connection, and connections of the pool.

        `interceptors` handle the requests and notifications of the server. `health` counts the
        calls of clients.
        """
        self.health = health
        self._serves_clients = True
        self.pool.opener.interceptors = interceptors
        self.pool.default = self
        if self.client is not None:
            self._default = self._for_clients(self.client)

    @property
    def current(self) -> UpstreamConnection | None:
        """The default connection, if it is open now."""
        default = self._default
        return default if default is not None and default.alive and not self._lost else None

    @property
    def startup_wait(self) -> StartupWait:
        """The time that a call waits until the server is connected."""
        return StartupWait(self.settings.connect_timeout, self.settings.call_timeout)

    async def default_connection(self) -> UpstreamConnection:
        """Return the default connection; wait while it is being opened.

        Raises:
            StillStarting: The start takes too long.
            FairleadError: The connection could not be opened.
        """
        if self.state == "connected" and (current := self.current) is not None:
            return current
        wait = self.startup_wait
        try:
            async with timeouts.timeout(wait.seconds) as limit:
                client = await self.ready()
                if not client.connected:  # a call may detect a loss before the owner task does
                    self.lose(client, client.transport.peer.end)
                    await self.ready()
        except TimeoutError as exc:
            # Only if the limit of this wait expired, the server is still starting.
            if not limit.expired() or isinstance(exc, FairleadError):
                raise
            raise StillStarting(wait) from None
        if self._default is None:
            raise ChannelClosed(f"{self.name}: the connection was lost", delivered=False)
        return self._default

    @property
    def busy(self) -> bool:
        """True while a request of the program or of a client is in progress."""
        default = self._default
        return super().busy or (default is not None and not default.quiet)

    @property
    def status(self) -> State:
        """The state for clients: "connected" if there is any connection that they can use."""
        has_other = any(one.alive for one in self.pool.connections)
        return "connected" if has_other and self.state != "stopped" else self.state

    @property
    def keeps_one(self) -> bool:
        """True if one connection stays open without a client."""
        return not self._lazy

    def connections_changed(self) -> None:
        """Reopen the default connection if no other is open, unless the server is lazy."""
        if self.keeps_one and self.state == "idle" and not self.pool.connections:
            self._needed.set()
        # The idle limit of the default connection depends on the other connections.
        self._wake.set()

    def _idle_limit(self) -> float:
        """Return the idle limit. Unless the server is lazy, its last connection has no limit."""
        if not self._lazy and not any(one.alive for one in self.pool.connections):
            return 0
        default = self._default
        called = default is not None and default.called
        return self.settings.idle_close_used if called else self.settings.idle_close

    def _last_use(self) -> float:
        default = self._default
        used = super()._last_use()
        return used if default is None else max(used, default.used)

    def _for_clients(self, client: MCPClient) -> UpstreamConnection:
        """Wrap the connection of the client; both receive the notifications of the server."""
        transport = client.transport
        connection = UpstreamConnection(
            self.name,
            transport.peer,
            settings=lambda: self.settings,
            interceptors=self.pool.opener.interceptors,
        )
        connection.on_unanswered = partial(self.check_hang, client)
        # The client's own observer is called first.
        before = transport.overhear

        def overhear(note: Notification) -> None:
            if before is not None:
                before(note)
            connection.notification_received(note)

        transport.overhear = overhear

        def answer_with(exchange: Exchange) -> Handler | None:
            """Return the handler that forwards a request to a client; None if the program handles
            it.
            """
            # A request of the program may have caused the server's request.
            ours = self._in_use or not connection.calls
            shared = self.settings.share == "all"
            return connection.request_received if shared or not ours else None

        transport.answer_with = answer_with
        self.pool.opener.learn_era(connection.stateless)
        self.pool.opener.forget_failures()
        return connection

    # The default connection

    async def _connect(self) -> MCPClient:
        self._lost = False
        client = await self._open(await self._resolved())
        self.client = client
        client.transport.on_close = partial(self.lose, client)
        # Errors do not end the connection, so they are only logged. `on_close` reports a loss.
        client.transport.on_error = partial(log.info, "%s: %s", self.name)
        if self._serves_clients:
            self._default = self._for_clients(client)
            self.pool.trim()
        self._tasks = ConnectionTasks(self, client, self.lists)
        self.loading = True
        self._changed(self)
        try:
            await self._tasks.begin(self.wanted)
        finally:
            self.loading = False
        if self._lost or not client.connected:
            gone = "the server disconnected while its tools were listed"
            raise self.error if isinstance(self.error, FairleadError) else ChannelClosed(gone)
        return client

    async def _resolved(self) -> MCPServerEntry:
        """Return the entry with its variables substituted."""
        entry = self.spec.entry
        if self.spec.resolve is not None:
            try:
                limit = self.settings.connect_timeout
                async with timeouts.timeout(limit or None):
                    entry = await self.spec.resolve()
            except TimeoutError as exc:
                raise connect_timeout_error(self.name, limit) from exc
        self._on_resolved(entry)
        return entry

    def _credentials(self, entry: MCPServerEntry) -> "RequestAuthorizer | None":
        return authorizer_for(
            entry,
            name=self._login,
            store=self._auth_storage,
            renew_headers=self.spec.renew_headers,
        )

    async def _open(self, entry: MCPServerEntry) -> MCPClient:
        async with self.starts.starting(self._start_priority, is_process=self.is_process):
            return await self._open_in_time(entry)

    async def _open_in_time(self, entry: MCPServerEntry) -> MCPClient:
        """Connect within the time limit, which excludes the wait for a start slot.

        A server that does not respond is stopped in the background, because stopping takes a while.
        """
        began, limit = time.monotonic(), self.settings.connect_timeout
        attempts: list[ConnectionAttempt[MCPClient]] = []
        opening = asyncio.get_running_loop().create_task(
            open_client(
                *(self.name, entry, 0, self._client_config(), self._listeners(), attempts.append),
                *(self._credentials, self._login),
            )
        )
        try:
            await asyncio.wait((opening,), timeout=limit or None)
            if opening.done():
                self.latency = time.monotonic() - began
                client = opening.result()
                self.starts.shortage.clear()
                return client
            output = attempts[0].unreadable_output if attempts else ()
            raise connect_timeout_error(self.name, limit, output)
        # Also on cancellation, because the attempt may have started a process.
        except BaseException:
            self._follow_to_its_end(_undo(opening))
            raise

    def _client_config(self) -> MCPClientConfig:
        era, limit = self.settings.era, self.settings.input_timeout
        version = self._config.protocol_version if era == "auto" else version_for_era(era)
        return replace(self._config, protocol_version=version, input_timeout=limit)

    def _listeners(self) -> Callbacks:
        callbacks, settings = self._callbacks, self.settings
        if settings.share == "all" and not self.lists.for_client:
            callbacks = declaring_callbacks(settings.capabilities)
        mine = callbacks.get("on_notification")

        def on_notification(method: str, params: dict[str, Any]) -> Awaitable[None] | None:
            if self._tasks is not None:
                self._tasks.heard(method)
            self._told(self.name, method, params)
            return None if mine is None else mine(method, params)

        return {**callbacks, "on_notification": on_notification}

    def lose(self, client: MCPClient, why: BaseException | None) -> None:
        super().lose(client, why)
        if self._lost:
            self._take_from_clients()

    def _take_from_clients(self) -> None:
        """Detach the sessions of clients from a default connection that was lost or closed."""
        default, self._default = self._default, None
        if default is None:
            return
        sessions = list(default.sessions)
        for session in sessions:
            session.detach()
        default.sessions.clear()
        if self.pool.on_lost is not None:
            self.pool.on_lost(default, default.peer.end or ChannelClosed(), sessions)

    async def _disconnect(self) -> None:
        self._liveness.close()
        tasks, self._tasks = self._tasks, None
        client, self.client = self.client, None
        default = self._default
        if default is not None and not self._lost:
            default.ending = True  # a deliberate close is not a loss
        self._take_from_clients()
        if client is not None:
            # The close below must not be reported as a loss.
            client.transport.on_close = client.transport.on_error = None
            await self._end(_close(client, tasks))
        if default is not None:
            await default.close()
        await self._wait_for_ends()

    async def _closed_for_good(self) -> None:
        await self.pool.close()

    def _state_changed(self) -> None:
        self._changed(self)


async def _undo(opening: "asyncio.Task[MCPClient]") -> None:
    """Close a connection whose opening was abandoned, at whatever stage."""
    opening.cancel()
    await asyncio.wait((opening,))
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().close()


async def _close(client: MCPClient, tasks: ConnectionTasks | None) -> None:
    try:
        if tasks is not None:
            await tasks.end()
    finally:
        await client.close()
