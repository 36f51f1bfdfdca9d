"""Many servers at once: connected together, each looked after, none able to hurt the others."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self, Unpack

from ..client import MCPClient, MCPClientConfig
from ..client.callbacks import Callbacks
from ..client.connection.era_cache import known_eras
from ..client.server_entry import MCPServerEntry
from ..errors import ConfigError
from ..upstream.start_limiter import StartLimiter
from .config_watch import Reloader, snapshot_reader
from .configured_servers import connect_configured
from .era_store import CachedEraStore
from .open_connection import MCPServerConnection, Source
from .resources_prompts import ResourcesAndPrompts
from .server_spec import ConnectReport, ServerSpec, Startup, read_spec
from .startup_gate import StartupGate
from .status_events import Listeners, NotificationListener, StatusListener, ToolsListener
from .supervisor import END_LIMIT, Rules, Supervisor
from .tool_index import ToolIndex
from .tools.tool import MCPTool
from .tools.tool_cache import MCPToolCache

__all__ = ["MCPManager"]

log = logging.getLogger("fairlead.manager")


class MCPManager(ResourcesAndPrompts):
    """Connects servers, keeps them, and offers their tools under one roof.

    async with MCPManager() as manager:
        await manager.connect_servers({"time": {"command": "uvx", "args": ["mcp-server-time"]}})
        for tool in manager.get_tools():
            print(tool.name)
    """

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
        **callbacks: Unpack[Callbacks],
    ) -> None:
        """`lazy`: servers start when they are first used. Without `cache` nothing is remembered."""
        self.cwd = Path(cwd) if cwd is not None else Path.cwd()
        self._startup: Startup = startup
        self._lazy = lazy
        if cache is not None:
            known_eras.keep(CachedEraStore(cache.others))
        self.rules = rules or Rules()
        self._config = config or MCPClientConfig()
        callbacks.setdefault("on_roots", lambda: [self.cwd])  # None: servers get none
        self._callbacks = callbacks
        self.start_limiter = StartLimiter(max_starts)  # of all processes, those of a gateway too
        self._specs: dict[str, ServerSpec] = {}
        self._supervisors: dict[str, Supervisor] = {}
        self._gate = StartupGate()
        self._listeners = Listeners()
        self._index = ToolIndex(
            self._specs,
            self._supervisors,
            cache,
            call=self._call,
            on_change=self._listeners.report_tools,
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
        """Connect servers, all at once. What cannot be connected is in `errors`; nothing raises.

        All of them: filters are for what was discovered, not for what somebody asks for.
        """
        began = asyncio.get_running_loop().time()
        errors: list[dict[str, str]] = []
        new: list[Supervisor] = []
        for name, config in configs.items():
            if name in self._supervisors:
                continue
            source = (sources or {}).get(name)
            try:
                self._check_open()
                spec = read_spec(config, source)
            except ConfigError as exc:
                errors.append({"path": _path(name, source), "error": str(exc)})
                continue
            new.append(self._begin(name, spec))
        self._listeners.report_connecting([s.name for s in new if s.state != "idle"])
        await self._gate.wait_briefly(new, began)
        if (startup or self._startup) == "wait":
            await self._gate.wait([s for s in new if not self._index.is_known(s.name)])
        for supervisor in new:
            if supervisor.state in ("failed", "suspended") and supervisor.error is not None:
                path = _path(supervisor.name, self.get_source(supervisor.name))
                errors.append({"path": path, "error": str(supervisor.error)})
        return ConnectReport(
            tools=self._index.rebuild(),
            errors=errors,
            connected_servers=self.get_connected_servers(),
        )

    def _begin(self, name: str, spec: ServerSpec) -> Supervisor:
        entry = spec.entry
        self._specs[name] = spec
        recalled = self._index.recall(name, entry)

        async def as_it_is() -> MCPServerEntry:
            return entry

        # A lazy server whose tools are not known has to be asked for them once.
        lazy = (self._lazy or entry.lazy) and recalled
        supervisor = Supervisor(
            name,
            spec.resolve or as_it_is,
            timeout=_seconds(spec.startup_timeout or entry.timeout),
            lazy=self._lazy or entry.lazy,
            slots=self.start_limiter,
            rules=self.rules,
            config=self._config,
            callbacks=self._callbacks,
            changed=self._changed,
            told=self._listeners.report_notification,
        )
        self._supervisors[name] = supervisor
        supervisor.start(now=not lazy)
        return supervisor

    async def discover_and_connect(self, *, watch: bool = False, **options: Any) -> ConnectReport:
        """Find every configured server and connect it; options of `discover_and_load_mcp_tools`.

        `watch`: the files are followed from then on, until the manager is closed.
        """
        report, _ = await connect_configured(self, self.cwd, **options)
        if watch:
            await self.watch(**options)
        return report

    async def watch(self, *, interval: float | None = None, **options: Any) -> None:
        """Follow the configuration files: what changes in them changes here, and nothing else.

        Options are those of `discover_and_load_mcp_tools`. Servers that were connected by hand
        are left alone. Ends with the manager, or when it is called again.
        """
        self._check_open()
        old, self._reloader = (
            self._reloader,
            Reloader(self, snapshot_reader(self.cwd, **options), interval=interval),
        )
        if old is not None:
            await old.close()
        self._reloader.start()

    async def settled(self) -> None:
        """Wait until every server is connected, or has failed, or is at rest."""
        await self._gate.wait(list(self._supervisors.values()))

    # What there is

    @property
    def connections(self) -> Mapping[str, MCPServerConnection]:
        """Servers that are connected."""
        return {
            name: _connection(supervisor, supervisor.client, self._specs[name])
            for name, supervisor in self._supervisors.items()
            if supervisor.state == "connected" and supervisor.client is not None
        }

    @property
    def pending_connections(self) -> set[str]:
        """Servers whose first handshake is under way."""
        return {
            n for n, s in self._supervisors.items() if s.state == "connecting" and not s.loading
        }

    @property
    def pending_tool_loads(self) -> set[str]:
        """Servers that have answered, and whose tools are being listed."""
        return {n for n, s in self._supervisors.items() if s.loading}

    @property
    def pending_reconnections(self) -> set[str]:
        """Servers that were lost and are being connected again."""
        return {
            n for n, s in self._supervisors.items() if s.state == "reconnecting" and not s.loading
        }

    @property
    def sources(self) -> Mapping[str, Source]:
        """Where each server was configured, connected or not."""
        return {name: spec.source for name, spec in self._specs.items()}

    @property
    def tools(self) -> list[MCPTool]:
        return self.get_tools()

    def get_tools(self) -> list[MCPTool]:
        """The tools of all servers, by name; those of a server that is down stay listed."""
        return self._index.tools

    def get_tool(self, name: str) -> MCPTool | None:
        return self._index.get(name)

    def get_connection_status(
        self, name: str
    ) -> Literal["connected", "connecting", "disconnected"]:
        supervisor = self._supervisors.get(name)
        if supervisor is not None and supervisor.state == "connected":
            return "connected"
        if supervisor is not None and supervisor.state in ("connecting", "reconnecting"):
            return "connecting"
        return "disconnected"

    def get_connection(self, name: str) -> MCPServerConnection | None:
        return self.connections.get(name)

    async def wait_for_connection(self, name: str) -> MCPServerConnection:
        """Wait until a server is connected; one at rest is started.

        Raises:
            FairleadError: it cannot be.
        """
        supervisor, spec = self._find(name), self._specs[name]
        return _connection(supervisor, await supervisor.ready(), spec)

    def get_connected_servers(self) -> list[str]:
        return sorted(n for n, s in self._supervisors.items() if s.state == "connected")

    def get_all_server_names(self) -> list[str]:
        return sorted(self._supervisors)

    def get_source(self, name: str) -> Source | None:
        spec = self._specs.get(name)
        return None if spec is None else spec.source

    def get_server_config(self, name: str) -> MCPServerEntry | None:
        """The entry as it stands in its file."""
        spec = self._specs.get(name)
        return None if spec is None else spec.entry

    def get_configured(self, name: str) -> ServerSpec | None:
        """Everything known about how a server is configured."""
        return self._specs.get(name)

    def remembered(self, name: str) -> list[dict[str, Any]] | None:
        """The tools that a server had last time, where that is known."""
        return self._index.remembered(name)

    def describe(self) -> Mapping[str, Supervisor]:
        """Every server with its state, error, latency and tools; not to be changed."""
        return MappingProxyType(self._supervisors)

    # Refreshing and ending

    async def refresh_server_tools(self, name: str) -> None:
        """List a server's tools again. Raises `FairleadError` if that fails."""
        await self._find(name).refresh()

    async def refresh_all_tools(self) -> None:
        """The same for all that are connected; failures are logged."""
        names = self.get_connected_servers()
        outcomes = await asyncio.gather(
            *(self.refresh_server_tools(name) for name in names), return_exceptions=True
        )
        for name, outcome in zip(names, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                log.warning("%s: its tools could not be listed again: %s", name, outcome)

    async def reconnect_server(self, name: str) -> None:
        """Connect a server anew, also one that was given up. Raises `FairleadError`."""
        await self._find(name).reconnect()

    async def disconnect_server(self, name: str) -> None:
        """End a server and forget it, its tools included. Its calls are answered at once."""
        await self._forget([name] if name in self._supervisors else [])

    async def disconnect_all(self) -> None:
        """End all servers at the same time, and forget them."""
        await self._forget(list(self._supervisors))
        await self._index.flush()

    async def _forget(self, names: list[str]) -> None:
        """Everything about them is gone at once; how long their ends take is another matter."""
        if not names:
            return
        ends = [self._supervisors.pop(name).halt() for name in names]
        specs = [self._specs.pop(name) for name in names]
        self._index.forget(names)
        self._gate.notify()
        path = specs[0].source.path if len(names) == 1 else None
        self._listeners.report_disconnected(names, path)
        self._index.rebuild()
        await asyncio.wait(ends, timeout=END_LIMIT)

    async def close(self) -> None:
        """End everything, for good."""
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

    # Each returns a function that ends it.

    def add_status_listener(self, listener: StatusListener) -> Callable[[], None]:
        """Hear when servers connect, fail, come back or go."""
        return self._listeners.add_status(listener)

    def add_tools_listener(self, listener: ToolsListener) -> Callable[[], None]:
        """Hear of every new set of tools."""
        return self._listeners.add_tools(listener)

    def add_notification_listener(self, listener: NotificationListener) -> Callable[[], None]:
        """Hear every notification: server, method, params."""
        return self._listeners.add_notification(listener)

    # Private

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("the manager is closed")

    def _find(self, name: str) -> Supervisor:
        supervisor = self._supervisors.get(name)
        if supervisor is None:
            known = ", ".join(sorted(self._supervisors)) or "none"
            raise ConfigError(f"There is no server {name!r}; there are: {known}")
        return supervisor

    async def _call(
        self, server: str, tool: str, arguments: Mapping[str, Any], **options: Any
    ) -> dict[str, Any]:
        return await self._find(server).call(tool, arguments, **options)

    def _changed(self, supervisor: Supervisor) -> None:
        """A server has a new state, or new tools."""
        name = supervisor.name
        if self._supervisors.get(name) is not supervisor:
            return  # disconnected meanwhile
        self._gate.notify()
        self._index.update(supervisor)
        path = self._specs[name].source.path
        self._listeners.report_state(name, supervisor.state, supervisor.error, path)


def _connection(supervisor: Supervisor, client: MCPClient, spec: ServerSpec) -> MCPServerConnection:
    return MCPServerConnection(
        name=supervisor.name,
        client=client,
        generation=supervisor.generation,
        entry=spec.entry,
        source=spec.source,
        latency=supervisor.latency,
    )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _path(name: str, source: Source | None) -> str:
    return source.path if source is not None and source.path else f"mcp:{name}"
