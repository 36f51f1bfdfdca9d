"""`MCPClient`: a connection to a server of any era, and the calls to it."""

import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Never, Self, Unpack

from ..errors import FairleadError
from ..keyword_arguments import named_arguments
from ..lazy_names import call_late
from ..protocol.envelope import SessionContext
from ..protocol.outgoing_params import Identity
from ..transport.channel import Channel
from ..wire.json import read_json
from .api.lists import read_result
from .api.notifications import CallbackMixin
from .api.result_cache import ResultCache
from .callbacks import Callbacks, check_callbacks
from .client_auth import ClientAuth, with_auth
from .client_config import MCPClientConfig, config_for_era, require_config
from .client_target import (
    ClientTarget,
    ConfiguredName,
    command_words,
    entry_with,
    read_target,
    refuse_options,
)
from .connection.connect import ConnectionAttempt, DeferredAttempt
from .connection.era_cache import known_eras
from .connection.handshake import negotiate
from .connection.reconnect import Reconnector
from .mcp_transport.channel_transport import ChannelOptions, ChannelTransport
from .mcp_transport.factory import transport_of
from .mcp_transport.inprocess import Attachable, InProcessTransport
from .mcp_transport.network import HttpOptions, WebSocketTransport
from .server_entry import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPSseServerConfig,
    MCPStdioServerConfig,
    MCPWebSocketServerConfig,
    read_entry,
)

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["MCPClient"]

_FORM = "async with MCPClient.connect(target, ...) as client:"


class MCPClient(CallbackMixin):
    """A connection to one server. Many tasks may share it, and any of them may close it.

    async with MCPClient.connect("server.py") as client:
        print((await client.call_tool("add", {"a": 1, "b": 2})).text)
    """

    @named_arguments(unchecked=("transport", "config", "identity"), form=f"`{_FORM}`")
    def __init__(
        self,
        transport: ChannelTransport,
        config: MCPClientConfig | None = None,
        *,
        identity: Identity | None = None,
        server_key: Hashable = None,
        renew: Callable[[], ChannelTransport] | None = None,
        **unknown: Never,
    ) -> None:
        """Create a client. `server_key` identifies the server, so that its era can be remembered.

        `identity` must be the identity that the transport was created with. `renew` creates another
        transport to the same server, for `auto_reconnect`.
        """
        if not isinstance(transport, ChannelTransport):
            raise TypeError(
                f"MCPClient takes a transport, not {_argument(transport)}: use "
                f"`async with MCPClient.connect({_argument(transport, name='server')}) as client:`"
            )
        if unknown:
            raise TypeError(f"unknown keyword argument {next(iter(unknown))!r}: use `{_FORM}`")
        config = require_config(config)
        keeper = Reconnector(self, renew if config.auto_reconnect else None)
        super().__init__(transport, config, keeper)
        if identity is not None:
            self._identity = identity
        self._server_key = server_key
        self._adopt(transport)

    # Hidden from type checkers, which would otherwise accept any misspelled name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Loaded on first use: only errors need them.
            from ..suggestions import missing_attribute
            from .client_migration_hints import CLIENT_HINTS

            raise missing_attribute(self, name, CLIENT_HINTS)

    # Connecting. Use each return value with `async with`, or await it and close the client later.

    @classmethod
    @named_arguments(unchecked=("target", "config", "auth"))
    def connect(
        cls,
        target: ClientTarget,
        config: MCPClientConfig | None = None,
        *,
        env: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        auth: ClientAuth = None,
        on_stderr: Callable[[str], None] | None = None,
        **callbacks: Unpack[Callbacks],
    ) -> "ConnectionAttempt[MCPClient]":
        """Connect to a server, given as one of the following.

        - a path or string that ends with `.py` or `.js`: a script, which is started
        - a URL (`http:`, `https:`, `ws:`, `wss:`, `unix:`)
        - a list, or a string with spaces: a command, which is started
        - any other string: the name of a configured server, as listed by `fairlead list`
        - a dict or an `MCPServerEntry`: an entry, or a configuration with one server
        - a server object: an `MCPServer`, which is called in this process

        `env` is for commands, `headers` are for URLs; both are added to the values in an entry.
        `auth` is "oauth" (a stored login, or a new one in the browser), a bearer token,
        `OAuthSettings`, a credential source, or a callback `authorize(request)` that returns
        the redirect URL.

        Raises:
            TypeError: The target has the wrong type, or a keyword argument is unknown.
            ConfigError: The script does not exist, or the entry is invalid. A configured name is
                unknown, disabled or not approved (raised when the connection is opened).
        """
        check_callbacks(callbacks, "config", "env", "headers", "auth", "on_stderr")
        found, config = read_target(target), require_config(config)

        def connect_to(entry: MCPServerEntry, name: str = "") -> "ConnectionAttempt[MCPClient]":
            entry, authorizer = with_auth(entry_with(entry, env, headers), auth, name)
            http: HttpOptions = {"authorizer": authorizer}
            return cls.connect_entry(entry, config, http=http, on_stderr=on_stderr, **callbacks)

        if isinstance(found, ConfiguredName):
            name = found.name
            return DeferredAttempt(lambda: _configured(name, connect_to))
        if isinstance(found, Attachable):
            refuse_options(auth=auth, env=env, headers=headers)
            return cls.connect_inprocess(found, config, **callbacks)
        return connect_to(found)

    @classmethod
    @named_arguments(unchecked=("command",))
    def connect_stdio(
        cls,
        command: Sequence[str],
        config: MCPClientConfig | None = None,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_stderr: Callable[[str], None] | None = None,
        **callbacks: Unpack[Callbacks],
    ) -> "ConnectionAttempt[MCPClient]":
        """Start a server as a child process and connect to it."""
        check_callbacks(callbacks, "config", "env", "cwd", "on_stderr")
        program, *args = command_words(command)
        entry = MCPStdioServerConfig(command=program, args=args, env=dict(env or {}), cwd=cwd)
        return cls.connect_entry(entry, config, on_stderr=on_stderr, **callbacks)

    @classmethod
    @named_arguments(unchecked=("auth", "http"))
    def connect_http(
        cls,
        base_url: str,
        config: MCPClientConfig | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        mode: Literal["http", "sse"] = "http",
        auth: ClientAuth = None,
        http: HttpOptions | None = None,
        **callbacks: Unpack[Callbacks],
    ) -> "ConnectionAttempt[MCPClient]":
        """Connect to a server of any era over HTTP. A URL without a path means `/mcp`.

        With `mode="sse"`, HTTP+SSE of 2024-11-05 is tried first; with "http", last.
        `unix:///path.sock#/mcp` is a server on a unix domain socket. For `auth`, see `connect`.
        """
        check_callbacks(callbacks, "config", "headers", "mode", "auth", "http")
        kind = MCPSseServerConfig if mode == "sse" else MCPHttpServerConfig
        entry = kind(url=base_url, headers=dict(headers or {}))
        return cls.connect_entry(entry, config, auth=auth, http=http, **callbacks)

    @classmethod
    @named_arguments(unchecked=("auth",))
    def connect_websocket(
        cls,
        url: str,
        config: MCPClientConfig | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        dialect: Literal["jsonrpc", "toolcall"] = "jsonrpc",
        ssl: "SSLContext | None" = None,
        auth: ClientAuth = None,
        **callbacks: Unpack[Callbacks],
    ) -> "ConnectionAttempt[MCPClient]":
        """Connect to a server over WebSocket (`ws:` or `wss:`). For `auth`, see `connect`."""
        check_callbacks(callbacks, "config", "headers", "dialect", "ssl", "auth")
        given = MCPWebSocketServerConfig(url=url, headers=dict(headers or {}), dialect=dialect)
        entry, authorizer = with_auth(given, auth)
        return cls._connect(
            lambda options: WebSocketTransport(entry, ssl=ssl, authorizer=authorizer, **options),
            config,
            callbacks,
        )

    @classmethod
    @named_arguments(unchecked=("entry", "config", "auth", "http"))
    def connect_entry(
        cls,
        entry: MCPServerEntry | dict[str, Any],
        config: MCPClientConfig | None = None,
        *,
        auth: ClientAuth = None,
        http: HttpOptions | None = None,
        on_stderr: Callable[[str], None] | None = None,
        **callbacks: Unpack[Callbacks],
    ) -> "ConnectionAttempt[MCPClient]":
        """Connect to a server described by an entry in a configuration file.

        `on_stderr` is called with each line that a child process writes to stderr. For `auth`, see
        `connect`; without it, an entry with an `auth` or `oauth` block uses the stored login.

        Raises:
            ConfigError: The entry is invalid.
        """
        check_callbacks(callbacks, "config", "auth", "http", "on_stderr")
        given = read_entry(entry)
        config = config_for_era(require_config(config), given.era)
        ways: HttpOptions = {"pool_size": config.connection_pool_size, **(http or {})}
        if "authorizer" not in ways:
            given, ways["authorizer"] = with_auth(given, auth)
        elif auth is not None:
            raise TypeError("pass either auth or http['authorizer'], not both")
        return cls._connect(
            lambda options: transport_of(given, http=ways, on_stderr=on_stderr, **options),
            config,
            callbacks,
            _key(given),
        )

    @classmethod
    def connect_inprocess(
        cls,
        server: Attachable,
        config: MCPClientConfig | None = None,
        **callbacks: Unpack[Callbacks],
    ) -> "ConnectionAttempt[MCPClient]":
        """Connect to an `MCPServer` in this process, or to any object with an `attach` method."""
        if not isinstance(server, Attachable):
            raise TypeError(f"server must be a server object, not {_argument(server)}")
        return cls._connect(
            lambda options: InProcessTransport(server, **options), config, callbacks
        )

    @classmethod
    @named_arguments
    def connect_unix(
        cls, path: str, config: MCPClientConfig | None = None, **callbacks: Unpack[Callbacks]
    ) -> "ConnectionAttempt[MCPClient]":
        """Connect to a server that serves line-delimited JSON on a unix domain socket."""
        from ..transport.socket import connect_unix

        return cls.connect_channel(lambda: connect_unix(path), config, **callbacks)

    @classmethod
    @named_arguments
    def connect_tcp(
        cls,
        host: str,
        port: int,
        config: MCPClientConfig | None = None,
        **callbacks: Unpack[Callbacks],
    ) -> "ConnectionAttempt[MCPClient]":
        """Connect to a server that serves line-delimited JSON on a TCP port."""
        from ..transport.socket import connect_tcp

        return cls.connect_channel(lambda: connect_tcp(host, port), config, **callbacks)

    @classmethod
    @named_arguments
    def connect_channel(
        cls,
        open_channel: Callable[[], Awaitable[Channel]],
        config: MCPClientConfig | None = None,
        **callbacks: Unpack[Callbacks],
    ) -> "ConnectionAttempt[MCPClient]":
        """Connect over a custom channel that `open_channel` opens."""
        return cls._connect(
            lambda options: ChannelTransport(open_channel, **options), config, callbacks
        )

    @classmethod
    def _connect(
        cls,
        make_transport: Callable[[ChannelOptions], ChannelTransport],
        config: MCPClientConfig | None,
        callbacks: Callbacks,
        key: Hashable = None,
    ) -> "ConnectionAttempt[MCPClient]":
        """Return a connection attempt that opens each connection with a new transport."""
        check_callbacks(callbacks, "config")
        config = require_config(config)
        identity = Identity({"name": config.name, "version": config.version}, {})
        options = ChannelOptions(
            timeout=config.timeout_seconds,
            identity=identity,
            gated=True,
            input_timeout=config.input_timeout,
        )

        def transport() -> ChannelTransport:
            return make_transport(options)

        def make() -> "MCPClient":
            client = cls(transport(), config, identity=identity, server_key=key, renew=transport)
            return client._with(**callbacks)

        return ConnectionAttempt(make, key)

    # Opening and closing

    async def initialize(self) -> dict[str, Any]:
        """Connect, negotiate era and version, and return the server's description.

        Raises:
            ConnectFailed: The connection could not be opened; the message contains the reason.
            ChannelClosed: The server ended the connection.
        """
        return await self.open(known_eras.stateless(self._server_key))

    async def open(self, stateless: bool | None = None) -> dict[str, Any]:
        """Connect.

        `stateless` is True or False if the server's era is known; False sends `initialize` without
        a probe. None uses the remembered era, if any.
        """
        await self.open_on(self.transport, stateless)
        if self.on_log is not None:
            await self._request_info_logs()
        self._reconnector.watch(self.config.health_check_interval)
        return self.server

    async def open_on(self, transport: ChannelTransport, stateless: bool | None = None) -> None:
        """Connect a transport, negotiate with its server, and use this transport from now on."""
        transport.interceptors, transport.on_malformed = self._interceptors, self._on_offence
        await transport.connect()
        agreement = await negotiate(
            transport.peer, self._identity, self.config, stateless, self._server_key
        )
        if transport is not self.transport:
            old = self.transport
            transport.on_close, transport.on_error = old.on_close, old.on_error
            # The schemas may differ if the server was updated in the meantime.
            self._known.forget_schemas()
        self._adopt(transport)
        # A renewed channel restores the subscriptions itself, but may miss changes before that.
        transport.peer.channel.on_renewed = self._missed
        self.transport = transport
        self._agreement = agreement
        self._capabilities = read_json(agreement.capabilities, dict[str, Any], {})
        await self._keep_results(self.config.cache and agreement.revision.stateless)

    async def close(self) -> None:
        """Close the connection, and stop the server if this client started it.

        Any task may call this method, more than once.
        """
        for watch in self._watches:
            watch.end()
        try:
            await self._reconnector.close()
            await self._keep_results(False)
            await self._listening.close()
        # The transport must be closed even if the task that closes the client is cancelled.
        finally:
            await self.transport.close()

    async def __aenter__(self) -> Self:
        if self._agreement is None:
            try:
                await self.initialize()
            # `__aexit__` is not called if `__aenter__` fails.
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # State of the connection

    @property
    def connected(self) -> bool:
        """Return True if the client can send requests now."""
        return self.transport.connected

    @property
    def server(self) -> dict[str, Any]:
        """The server's version, capabilities, name and instructions."""
        agreement = self._agreement
        if agreement is None:
            return {}
        known = {
            "protocolVersion": agreement.revision.value,
            "capabilities": self._capabilities,
            "serverInfo": read_json(agreement.server_info, dict[str, Any], {}),
        }
        if agreement.instructions is not None:
            known["instructions"] = agreement.instructions
        return known

    @property
    def protocol_version(self) -> str | None:
        """The negotiated version; None before the connection is open."""
        return self._agreement.revision.value if self._agreement else None

    @property
    def instructions(self) -> str | None:
        """The server's instructions for models."""
        return self._agreement.instructions if self._agreement else None

    @property
    def session(self) -> SessionContext:
        """Snapshot of the conversation: state, version, capabilities and names."""
        return self.transport.peer.session

    @property
    def generation(self) -> int:
        """How many times the connection was replaced."""
        return self._reconnector.generation

    @property
    def health(self) -> dict[str, Any] | None:
        """Result of the last periodic health check; see `health_check`."""
        return self._reconnector.health

    async def ping(self) -> None:
        """Check that the server responds. Raises the request's error if it does not."""
        # Stateless revisions have no `ping`.
        await self.request("server/discover" if self._stateless else "ping", retry=False)

    async def discover(self, *, cache: bool = True) -> dict[str, Any]:
        """Return the server's description: from `server/discover`, or from the handshake."""
        if not self._stateless:
            return self.server
        return read_result(await self._read("server/discover", None, cache))

    async def health_check(self) -> dict[str, Any]:
        """Return whether the server responds, and its latency. Never raises."""
        started = time.perf_counter()
        name = self.server.get("serverInfo", {}).get("name")
        error: dict[str, str] = {}
        try:
            await self.ping()
        except (FairleadError, OSError) as exc:
            error = {"error": str(exc)}
        latency = round((time.perf_counter() - started) * 1000, 3)
        return {"ok": not error, "latency_ms": latency, "server": name, **error}

    async def _keep_results(self, wanted: bool) -> None:
        old, self._cache = self._cache, None
        if wanted:
            self._cache = ResultCache(stale=self.config.stale_seconds)
        if old is not None:
            await old.close()


async def _configured(
    name: str, connect_to: "Callable[[MCPServerEntry, str], ConnectionAttempt[MCPClient]]"
) -> "ConnectionAttempt[MCPClient]":
    """Look up a configured server, and return the attempt to connect to it."""
    return connect_to(await call_late("configured_entry", name), name)


def _key(entry: MCPServerEntry) -> Hashable:
    """Return the key under which a server's era is remembered."""
    if isinstance(entry, MCPStdioServerConfig):
        return (entry.command, *entry.args, entry.cwd, tuple(sorted(entry.env.items())))
    return entry.url


def _argument(given: object, name: str = "") -> str:
    """Return the source code for an argument, as far as a message can show it.

    Other objects are shown as `name`, or as their type.
    """
    is_plain = isinstance(given, str | dict | list | tuple)
    return f"{given!r:.100}" if is_plain else name or type(given).__name__
