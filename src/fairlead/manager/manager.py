"""Many servers at once, connected concurrently and monitored independently of each other."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, Unpack

from msgspec import structs

from ..client import MCPClient, MCPClientConfig
from ..client.callbacks import Callbacks, check_callbacks
from ..client.client_config import require_config
from ..client.connection.era_cache import known_eras
from ..client.server_entry import MCPServerEntry
from ..config.server_spec import ServerSpec, entries_by_name, read_spec
from ..config.upstream_settings import Rules
from ..errors import ConfigError
from ..keyword_arguments import named_arguments
from ..protocol.targets.list_kind import ListKind
from ..upstream.connection_keeper import END_LIMIT
from ..upstream.memory.server_memory import CachedEraStore
from ..upstream.memory.tool_cache import MCPToolCache
from ..upstream.memory.tool_memory import ToolMemory
from ..upstream.status_events import (
    NotificationListener,
    StatusListener,
    added_listener,
    call_safely,
)
from ..upstream.upstream import Upstream
from ..upstream.upstream_calls import UpstreamCalls
from ..upstream.upstream_registry import UpstreamRegistry
from .config_watch import Reloader, snapshot_reader
from .connect_configured import (
    MANAGER_OPTIONS,
    ConnectReport,
    Startup,
    check_discovery_options,
    connect_configured,
)
from .open_connection import MCPServerConnection, Source
from .resources_prompts import ResourcesAndPrompts
from .startup_gate import wait_briefly, wait_until_settled
from .tool_index import ToolIndex
from .tools.tool import MCPTool
from .tools.tool_result import named_error

if TYPE_CHECKING:
    from ..auth.storage.credential_store import CredentialStore

__all__ = ["MCPManager"]

log = logging.getLogger("fairlead.manager")

ToolsListener: TypeAlias = Callable[[list[MCPTool]], None]


class MCPManager(ResourcesAndPrompts):
    """Connects servers, monitors them, and provides their tools.

    async with MCPManager() as manager:
        await manager.connect_servers({"time": {"command": "uvx", "args": ["mcp-server-time"]}})
        for tool in manager.get_tools():
            print(tool.name)
    """

    @named_arguments
    def __init__(
        self,
        cwd: str | os.PathLike[str] | None = None,
        *,
        startup: Startup = "wait",
        lazy: bool = False,
        cache: MCPToolCache | None = None,
        rules: Rules | None = None,
        config: MCPClientConfig | None = None,
        max_starts: int | None = None,
        auth_storage: "CredentialStore | None" = None,
        **callbacks: Unpack[Callbacks],
    ) -> None:
        """Create a manager. With `lazy`, servers start on first use.

        Without `cache`, no tools are stored for the next run. `auth_storage` contains the logins
        for servers; by default, the user's stored logins.
        """
        check_callbacks(callbacks, *MANAGER_OPTIONS)
        if not isinstance(cwd, str | os.PathLike | None):
            raise TypeError(
                f"cwd must be a folder, not {type(cwd).__name__}: to connect servers, use "
                "`await manager.connect_servers({...})`"
            )
        self.cwd = Path(cwd) if cwd is not None else Path.cwd()
        self._startup: Startup = startup
        self._lazy = lazy
        if cache is not None:
            known_eras.keep(CachedEraStore(cache.others))
        self.rules = rules or Rules()
        config = require_config(config)
        # pass `on_roots=None` to declare no roots
        callbacks.setdefault("on_roots", lambda: [self.cwd])
        self.upstreams = UpstreamRegistry(
            structs.replace(self.rules.settings, input_timeout=config.input_timeout),
            kinds=(ListKind.TOOLS,),
            for_client=True,
            config=config,
            callbacks=callbacks,
            max_starts=max_starts,
            auth_storage=auth_storage,
        )
        self.upstreams.add_change_listener(self._changed)
        self._calls: dict[str, UpstreamCalls] = {}
        self._tools_listeners: list[ToolsListener] = []
        self._memory = ToolMemory(cache)
        self._index = ToolIndex(
            self.upstreams, self._memory, call=self._call, on_change=self._report_tools
        )
        self._reloader: Reloader | None = None
        self._closed = False

    # Connecting

    async def connect_servers(
        self,
        configs: Mapping[str, MCPServerEntry | ServerSpec | dict[str, Any]],
        sources: Mapping[str, Source] | None = None,
        *,
        startup: Startup | None = None,
    ) -> ConnectReport:
        """Connect servers concurrently. Failures are listed in the report's `errors`, not raised.

        `configs` maps names to entries, or is a configuration with the key `mcpServers`. Filters
        apply only to discovered servers, not to these servers.

        Raises:
            TypeError: `configs` is not a mapping.
        """
        began = asyncio.get_running_loop().time()
        errors: list[dict[str, str]] = []
        new: list[Upstream] = []
        for name, config in entries_by_name(configs).items():
            if name in self._calls:
                continue
            source = (sources or {}).get(name)
            try:
                self._check_open()
                spec = read_spec(config, source)
            except ConfigError as exc:
                errors.append({"path": _path(name, source), "error": named_error(name, exc)})
                continue
            new.append(self._begin(name, spec))
        self.upstreams.events.report_connecting([s.name for s in new if s.state != "idle"])
        await wait_briefly(new, began)
        if (startup or self._startup) == "wait":
            # A remembered server's tools can be listed already, so it need not be awaited.
            await wait_until_settled([s for s in new if not self._memory.is_known(s.name)])
        for upstream in new:
            failed = upstream.state in ("failed", "suspended")
            error = upstream.error if failed else upstream.tools_error
            if error is not None and (failed or upstream.tools is None):
                path = _path(upstream.name, self.get_source(upstream.name))
                errors.append({"path": path, "error": named_error(upstream.name, error)})
        return ConnectReport(
            tools=self._index.rebuild(),
            errors=errors,
            connected_servers=self.get_connected_servers(),
        )

    def add_servers(self, specs: Mapping[str, ServerSpec], /) -> None:
        """Add servers and start connecting them, without waiting for any of them.

        Raises:
            ConfigError: The manager is closed.
        """
        self._check_open()
        new = [self._begin(name, spec) for name, spec in specs.items() if name not in self._calls]
        self.upstreams.events.report_connecting([s.name for s in new if s.state != "idle"])

    def update_settings(self, specs: Mapping[str, ServerSpec], /) -> None:
        """Apply changed settings of entries to their servers, without a restart."""
        for name, spec in specs.items():
            self.upstreams[name].update_settings(self.upstreams.settings, spec)

    def _begin(self, name: str, spec: ServerSpec) -> Upstream:
        recalled = self._memory.recall(name, spec.entry)
        upstream = self.upstreams.add(name, spec, lazy=self._lazy)
        self._calls[name] = UpstreamCalls(upstream)
        # A lazy server whose tools are unknown is started once to list them.
        upstream.start(now=not ((self._lazy or spec.entry.lazy) and recalled))
        return upstream

    async def discover_and_connect(self, *, watch: bool = False, **options: Any) -> ConnectReport:
        """Find all configured servers and connect them.

        Accepts the options of `discover_and_load_mcp_tools`. With `watch`, later changes to the
        files are applied until the manager is closed.
        """
        check_discovery_options(options, "watch")
        report, _ = await connect_configured(self, self.cwd, **options)
        if watch:
            await self.watch(**options)
        return report

    async def watch(self, *, interval: float | None = None, **options: Any) -> None:
        """Apply changes to configuration files to the servers they configure.

        Accepts the options of `discover_and_load_mcp_tools`. Servers that the program connected
        itself are not affected. Watching ends when the manager is closed, or when this method is
        called again.
        """
        check_discovery_options(options, "interval")
        self._check_open()
        old, self._reloader = (
            self._reloader,
            Reloader(self, snapshot_reader(self.cwd, **options), interval=interval),
        )
        if old is not None:
            await old.close()
        self._reloader.start()

    async def settled(self) -> None:
        """Wait until every server is connected, has failed, or is idle."""
        await wait_until_settled(list(self.upstreams.values()))

    # Inspection

    @property
    def connections(self) -> Mapping[str, MCPServerConnection]:
        """The connected servers."""
        return {
            name: _connection(upstream, upstream.client)
            for name, upstream in self.upstreams.items()
            if upstream.state == "connected" and upstream.client is not None
        }

    @property
    def pending_connections(self) -> set[str]:
        """Servers whose first handshake is in progress."""
        return {n for n, s in self.upstreams.items() if s.state == "connecting" and not s.loading}

    @property
    def pending_tool_loads(self) -> set[str]:
        """Servers that have answered and whose tools are being listed."""
        return {n for n, s in self.upstreams.items() if s.loading}

    @property
    def pending_reconnections(self) -> set[str]:
        """Servers that were lost and are being reconnected."""
        return {n for n, s in self.upstreams.items() if s.state == "reconnecting" and not s.loading}

    @property
    def sources(self) -> Mapping[str, Source]:
        """The source of each server's configuration, whether it is connected or not."""
        return {name: one.spec.source for name, one in self.upstreams.items()}

    @property
    def tools(self) -> list[MCPTool]:
        return self.get_tools()

    def get_tools(self) -> list[MCPTool]:
        """Return the tools of all servers, sorted by name. A lost server's tools stay listed."""
        return self._index.tools

    def get_tool(self, name: str) -> MCPTool | None:
        return self._index.get(name)

    def get_connection_status(
        self, name: str
    ) -> Literal["connected", "connecting", "disconnected"]:
        upstream = self.upstreams.get(name)
        if upstream is not None and upstream.state == "connected":
            return "connected"
        if upstream is not None and upstream.state in ("connecting", "reconnecting"):
            return "connecting"
        return "disconnected"

    def get_connection(self, name: str) -> MCPServerConnection | None:
        return self.connections.get(name)

    async def wait_for_connection(self, name: str) -> MCPServerConnection:
        """Wait until a server is connected; start it if it is idle.

        Raises:
            FairleadError: The server is unknown or cannot be connected.
        """
        upstream = self._find(name).upstream
        return _connection(upstream, await upstream.ready())

    def get_connected_servers(self) -> list[str]:
        return self.upstreams.connected()

    def get_all_server_names(self) -> list[str]:
        return sorted(self.upstreams)

    def get_source(self, name: str) -> Source | None:
        spec = self.get_configured(name)
        return None if spec is None else spec.source

    def get_server_config(self, name: str) -> MCPServerEntry | None:
        """Return the entry as written in its file, or None."""
        spec = self.get_configured(name)
        return None if spec is None else spec.entry

    def get_configured(self, name: str) -> ServerSpec | None:
        """Return the complete configuration of a server, or None."""
        upstream = self.upstreams.get(name)
        return None if upstream is None else upstream.spec

    def remembered(self, name: str) -> list[dict[str, Any]] | None:
        """Return the tools that a server had in the last run; None if they are unknown."""
        return self._memory.get(name)

    def describe(self) -> Mapping[str, Upstream]:
        """Return all servers with state, error, latency and tools.

        Do not modify the returned objects.
        """
        return self.upstreams

    # Refreshing tools and disconnecting servers

    async def refresh_server_tools(self, name: str) -> None:
        """List a server's tools again.

        Raises:
            FairleadError: The server is unknown, or the list failed.
        """
        await self._find(name).refresh_tools()

    async def refresh_all_tools(self) -> None:
        """List the tools of all connected servers again; failures are logged."""
        names = self.get_connected_servers()
        outcomes = await asyncio.gather(
            *(self.refresh_server_tools(name) for name in names), return_exceptions=True
        )
        for name, outcome in zip(names, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                log.warning("%s: the tools could not be listed again: %s", name, outcome)

    async def reconnect_server(self, name: str) -> None:
        """Reconnect a server, even if it is suspended.

        Raises:
            FairleadError: The server is unknown or cannot be connected.
        """
        await self._find(name).upstream.reconnect()

    async def disconnect_server(self, name: str) -> None:
        """Disconnect and forget a server and its tools. Pending calls fail immediately."""
        await self._forget([name] if name in self._calls else [])

    async def disconnect_all(self) -> None:
        """Disconnect all servers concurrently, and forget them."""
        await self._forget(list(self._calls))
        await self._memory.flush()

    async def _forget(self, names: list[str]) -> None:
        """Forget servers immediately, then wait a limited time until they are closed."""
        if not names:
            return
        self._memory.forget(names)
        for name in names:
            del self._calls[name]
        ends = self.upstreams.remove(names)
        self._index.rebuild()
        if ends:
            await asyncio.wait(ends, timeout=END_LIMIT)

    async def close(self) -> None:
        """Close the manager permanently."""
        self._closed = True
        reloader, self._reloader = self._reloader, None
        if reloader is not None:
            await reloader.close()
        await self.disconnect_all()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # Listeners

    # Each method returns a function that removes the listener.

    def add_status_listener(self, listener: StatusListener) -> Callable[[], None]:
        """Register a listener for server status events."""
        return self.upstreams.add_status_listener(listener)

    def add_tools_listener(self, listener: ToolsListener) -> Callable[[], None]:
        """Register a listener for changed tool sets."""
        return added_listener(self._tools_listeners, listener)

    def add_notification_listener(self, listener: NotificationListener) -> Callable[[], None]:
        """Register a listener for notifications: server, method, params."""
        return self.upstreams.add_notification_listener(listener)

    # Private

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("the manager is closed")

    def _find(self, name: str) -> UpstreamCalls:
        calls = self._calls.get(name)
        if calls is None:
            known = ", ".join(sorted(self._calls)) or "none"
            raise ConfigError(f"Unknown server {name!r}; known servers: {known}")
        return calls

    async def _call(
        self, server: str, tool: str, arguments: Mapping[str, Any], **options: Any
    ) -> dict[str, Any]:
        return await self._find(server).call(tool, arguments, **options)

    def _changed(self, upstream: Upstream) -> None:
        """Handle a new state or new tools of a server."""
        self._memory.update(upstream)
        self._index.rebuild_soon()

    def _report_tools(self, tools: list[MCPTool]) -> None:
        # Copied, because a listener may remove itself while it is called.
        for listener in tuple(self._tools_listeners):
            call_safely(listener, list(tools))


def _connection(upstream: Upstream, client: MCPClient) -> MCPServerConnection:
    return MCPServerConnection(
        name=upstream.name,
        client=client,
        generation=upstream.generation,
        entry=upstream.spec.entry,
        source=upstream.spec.source,
        latency=upstream.latency,
    )


def _path(name: str, source: Source | None) -> str:
    return source.path if source is not None and source.path else f"mcp:{name}"
