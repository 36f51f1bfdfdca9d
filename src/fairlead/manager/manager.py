"""Many servers at once: connected together, each looked after, none able to hurt the others."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from msgspec import Struct

from ..client import MCPClient, MCPClientConfig
from ..client.callbacks import Callbacks
from ..client.connection.era_cache import known_eras
from ..client.server_entry import MCPServerEntry, read_entry
from ..errors import ConfigError
from ..protocol.targets.targets import normalize_name
from .era_store import CachedEraStore
from .open_connection import MCPServerConnection, Source
from .resources_prompts import ResourcesAndPrompts
from .start_limiter import StartLimiter
from .supervisor import END_LIMIT, Rules, Supervisor
from .tools.catalog import Listed, ToolCatalog
from .tools.tool import MCPTool
from .tools.tool_cache import MCPToolCache

if TYPE_CHECKING:
    from .config_watch import Reloader

__all__ = [
    "STARTUP_TIMEOUT_MS",
    "ConnectReport",
    "MCPManager",
    "MCPServerConnection",
    "ServerSpec",
    "Source",
    "StatusEvent",
]

STARTUP_TIMEOUT_MS = 250

log = logging.getLogger("fairlead.manager")

Startup = Literal["wait", "background"]


class ServerSpec(Struct, frozen=True, kw_only=True):
    """A server that may be connected: its entry as it stands in the file, and how to fill it in."""

    entry: MCPServerEntry
    resolve: Callable[[], Awaitable[MCPServerEntry]] | None = None  # None: as it is
    source: Source = Source()
    only_tools: tuple[str, ...] | None = None  # None: all of them
    without_tools: tuple[str, ...] = ()
    startup_timeout: float | None = None  # milliseconds; None: the entry's own
    digest: str = ""  # changes with the entry

    def has_tool(self, name: str) -> bool:
        """Return True if the entry lets a tool through.

        A tool is left out in any spelling of its name, and let in only as it is written.
        """
        if self.only_tools is not None and name not in self.only_tools:
            return False
        spelled = normalize_name(name).casefold()
        return all(normalize_name(one).casefold() != spelled for one in self.without_tools)


class StatusEvent(Struct, frozen=True, kw_only=True):
    """Something happened to servers."""

    kind: Literal["connecting", "connected", "failed", "reconnecting", "disconnected"]
    names: tuple[str, ...]
    error: str | None = None
    path: str | None = None


class ConnectReport(Struct, frozen=True, kw_only=True):
    """What connecting brought, as far as it was known when it returned."""

    tools: list[MCPTool]
    errors: list[dict[str, str]]  # {path, error}
    connected_servers: list[str]


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
        self._cache = cache
        if cache is not None:
            known_eras.keep(CachedEraStore(cache.others))
        self._rules = rules or Rules()
        self._config = config or MCPClientConfig()
        callbacks.setdefault("on_roots", lambda: [self.cwd])  # None: servers get none
        self._callbacks = callbacks
        self._slots = StartLimiter(max_starts)
        self._configured: dict[str, ServerSpec] = {}
        self._supervisors: dict[str, Supervisor] = {}
        self._remembered: dict[str, list[dict[str, Any]]] = {}  # tools from last time
        self._failing: set[str] = set()  # did not start last time, so nobody waits for them
        self._catalog = ToolCatalog(self._call, self._about)
        self._said: dict[str, str] = {}  # the last state that listeners heard of, per server
        self._happened = asyncio.Event()
        self._rebuilding: asyncio.Handle | None = None
        self._writing: set[asyncio.Future[None]] = set()
        self._reloader: Reloader | None = None
        self._closed = False
        self._on_status: list[Callable[[StatusEvent], None]] = []
        self._on_tools: list[Callable[[list[MCPTool]], None]] = []
        self._on_notification: list[Callable[[str, str, dict[str, Any]], Any]] = []

    # Connecting

    async def connect_servers(
        self,
        configs: Mapping[str, "MCPServerEntry | ServerSpec | dict[str, Any]"],
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
            if self._closed:
                path = _path(name, (sources or {}).get(name))
                errors.append({"path": path, "error": "the manager is closed"})
                continue
            try:
                configured = _configured(config, (sources or {}).get(name))
            except ConfigError as exc:
                errors.append({"path": _path(name, (sources or {}).get(name)), "error": str(exc)})
                continue
            new.append(self._begin(name, configured))
        starting = [s.name for s in new if s.state != "idle"]
        self._said.update(dict.fromkeys(starting, "connecting"))  # for all of them together
        self._emit("connecting", starting)
        left = STARTUP_TIMEOUT_MS / 1000 - (asyncio.get_running_loop().time() - began)
        await self._wait_for(new, max(left, 0.0))
        if (startup or self._startup) == "wait":
            known = self._remembered.keys() | self._failing
            unknown = [s for s in new if s.name not in known]
            await self._wait_for(unknown, None)
        for supervisor in new:
            if supervisor.state in ("failed", "suspended") and supervisor.error is not None:
                path = _path(supervisor.name, self.get_source(supervisor.name))
                errors.append({"path": path, "error": str(supervisor.error)})
        return ConnectReport(
            tools=self._rebuild(),
            errors=errors,
            connected_servers=self.get_connected_servers(),
        )

    def _begin(self, name: str, configured: ServerSpec) -> Supervisor:
        entry = configured.entry
        self._configured[name] = configured
        remembered = self._from_last_time(name, entry)
        if remembered is not None:
            self._remembered[name] = remembered

        async def as_it_is() -> MCPServerEntry:
            return entry

        # A lazy server whose tools nobody knows has to be asked for them once.
        lazy = (self._lazy or entry.lazy) and remembered is not None
        supervisor = Supervisor(
            name,
            configured.resolve or as_it_is,
            timeout=_seconds(configured.startup_timeout or entry.timeout),
            lazy=self._lazy or entry.lazy,
            slots=self._slots,
            rules=self._rules,
            config=self._config,
            callbacks=self._callbacks,
            changed=self._changed,
            told=self._told,
        )
        self._supervisors[name] = supervisor
        supervisor.start(now=not lazy)
        return supervisor

    def _from_last_time(self, name: str, entry: MCPServerEntry) -> list[dict[str, Any]] | None:
        if self._cache is None:
            return None
        try:
            tools = self._cache.get(name, entry)
            if tools is None and self._cache.failed(name, entry):
                self._failing.add(name)
            return tools
        except Exception:  # a store of somebody else
            log.exception("%s: its tools could not be looked up", name)
            return None

    async def _wait_for(self, supervisors: list[Supervisor], seconds: float | None) -> None:
        """Until all of them have an outcome, or the time is over."""
        try:
            async with asyncio.timeout(seconds):
                while not all(s.settled.is_set() for s in supervisors):
                    self._happened.clear()
                    await self._happened.wait()
        except TimeoutError:
            pass

    async def discover_and_connect(self, *, watch: bool = False, **options: Any) -> ConnectReport:
        """Find every configured server and connect it; options of `discover_and_load_mcp_tools`.

        `watch`: the files are followed from then on, until the manager is closed.
        """
        from .configured_servers import discover_and_load_mcp_tools

        found = await discover_and_load_mcp_tools(self.cwd, manager=self, **options)
        if watch:
            await self.watch(**options)
        return ConnectReport(
            tools=found.tools, errors=found.errors, connected_servers=found.connected_servers
        )

    async def watch(self, *, interval: float | None = None, **options: Any) -> None:
        """Follow the configuration files: what changes in them changes here, and nothing else.

        Options are those of `discover_and_load_mcp_tools`. Servers that were connected by hand
        are left alone. Ends with the manager, or when it is called again.
        """
        from .config_watch import Reloader, snapshot_reader

        if self._closed:
            raise ConfigError("the manager is closed")
        old, self._reloader = (
            self._reloader,
            Reloader(self, snapshot_reader(self.cwd, **options), interval=interval),
        )
        if old is not None:
            await old.close()
        self._reloader.start()

    async def settled(self) -> None:
        """Wait until every server is connected, or has failed, or is at rest."""
        await self._wait_for(list(self._supervisors.values()), None)

    # What there is

    @property
    def connections(self) -> Mapping[str, MCPServerConnection]:
        """Servers that are connected."""
        return {
            name: _connection(supervisor, supervisor.client, self._configured[name])
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
        return {name: configured.source for name, configured in self._configured.items()}

    @property
    def tools(self) -> list[MCPTool]:
        return self.get_tools()

    def get_tools(self) -> list[MCPTool]:
        """The tools of all servers, by name; those of a server that is down stay listed."""
        return list(self._catalog.tools)

    def get_tool(self, name: str) -> MCPTool | None:
        return self._catalog.by_name.get(name)

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
        supervisor, configured = self._find(name), self._configured[name]
        return _connection(supervisor, await supervisor.ready(), configured)

    def get_connected_servers(self) -> list[str]:
        return sorted(n for n, s in self._supervisors.items() if s.state == "connected")

    def get_all_server_names(self) -> list[str]:
        return sorted(self._supervisors)

    def get_source(self, name: str) -> Source | None:
        configured = self._configured.get(name)
        return None if configured is None else configured.source

    def get_server_config(self, name: str) -> MCPServerEntry | None:
        """The entry as it stands in its file."""
        configured = self._configured.get(name)
        return None if configured is None else configured.entry

    def get_configured(self, name: str) -> ServerSpec | None:
        """Everything known about how a server is configured."""
        return self._configured.get(name)

    def remembered(self, name: str) -> list[dict[str, Any]] | None:
        """The tools that a server had last time, where that is known."""
        return self._remembered.get(name)

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
        if self._writing:
            await asyncio.wait(self._writing, timeout=2.0)

    async def _forget(self, names: list[str]) -> None:
        """Everything about them is gone at once; how long their ends take is another matter."""
        if not names:
            return
        sources = {name: self._configured[name].source for name in names}
        ends = [self._supervisors.pop(name).halt() for name in names]
        self._failing.difference_update(names)
        for name in names:
            for known in (self._configured, self._remembered, self._said):
                known.pop(name, None)
        self._happened.set()
        self._emit("disconnected", names, path=sources[names[0]].path if len(names) == 1 else None)
        self._rebuild()
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

    def add_status_listener(self, listener: Callable[[StatusEvent], None]) -> Callable[[], None]:
        """Hear when servers connect, fail, come back or go."""
        return _added(self._on_status, listener)

    def add_tools_listener(self, listener: Callable[[list[MCPTool]], None]) -> Callable[[], None]:
        """Hear of every new set of tools."""
        return _added(self._on_tools, listener)

    def add_notification_listener(
        self, listener: Callable[[str, str, dict[str, Any]], Any]
    ) -> Callable[[], None]:
        """Hear every notification: server, method, params."""
        return _added(self._on_notification, listener)

    # Private

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

    def _about(self, server: str) -> Mapping[str, Any]:
        """What all tools of a server have in common."""
        source = self._configured[server].source

        def available() -> bool:
            supervisor = self._supervisors.get(server)
            return supervisor is not None and supervisor.state in ("connected", "idle")

        return {
            "provider": source.provider,
            "provider_name": source.provider_name,
            "available": available,
        }

    def _listed(self) -> Iterable[Listed]:
        for name, supervisor in self._supervisors.items():
            if supervisor.tools is not None:
                yield name, self._allowed(name, supervisor.tools), False
            elif name in self._remembered:
                yield name, self._allowed(name, self._remembered[name]), True

    def _allowed(self, name: str, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Without those that the configuration leaves out."""
        configured = self._configured[name]
        if configured.only_tools is None and not configured.without_tools:
            return tools
        return [tool for tool in tools if configured.has_tool(str(tool.get("name")))]

    def _rebuild(self) -> list[MCPTool]:
        if self._rebuilding is not None:
            self._rebuilding.cancel()
            self._rebuilding = None
        before = self._catalog.tools
        tools = self._catalog.build(self._listed())
        if tools != before:
            for listener in tuple(self._on_tools):
                _safely(listener, list(tools))
        return list(tools)

    def _changed(self, supervisor: Supervisor) -> None:
        """A server has a new state, or new tools."""
        name = supervisor.name
        if self._supervisors.get(name) is not supervisor:
            return  # one that was disconnected has nothing to say any more
        self._happened.set()
        if supervisor.tools is not None and supervisor.tools is not self._remembered.get(name):
            self._remembered[name] = supervisor.tools
            self._failing.discard(name)
            self._keep(name, supervisor.tools)
        elif (
            supervisor.state == "failed"
            and name not in self._remembered.keys() | self._failing
            # A mistake in its configuration, or a missing approval, costs nobody any time.
            and not isinstance(supervisor.error, ConfigError)
        ):
            self._failing.add(name)
            self._keep(name, None)
        if self._rebuilding is None:
            self._rebuilding = asyncio.get_running_loop().call_soon(self._rebuild_soon)
        self._say(supervisor)

    def _rebuild_soon(self) -> None:
        self._rebuilding = None
        self._rebuild()

    def _say(self, supervisor: Supervisor) -> None:
        kind = _KINDS.get(supervisor.state)
        if kind is None or self._said.get(supervisor.name) == kind:
            return
        self._said[supervisor.name] = kind
        error = None if supervisor.error is None else str(supervisor.error)
        path = self._configured[supervisor.name].source.path
        self._emit(kind, [supervisor.name], error, path)

    def _emit(
        self, kind: Any, names: list[str], error: str | None = None, path: str | None = None
    ) -> None:
        if not names:
            return
        event = StatusEvent(kind=kind, names=tuple(names), error=error, path=path)
        for listener in tuple(self._on_status):
            _safely(listener, event)

    def _keep(self, name: str, tools: list[dict[str, Any]] | None) -> None:
        """Write the cache beside everything else; whether that works does not matter."""
        if self._cache is None:
            return
        entry = self._configured[name].entry
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(None, self._cache.set, name, entry, tools)
        self._writing.add(writing)
        writing.add_done_callback(self._written)

    def _written(self, writing: "asyncio.Future[None]") -> None:
        self._writing.discard(writing)
        if not writing.cancelled() and (error := writing.exception()) is not None:
            log.warning("tools could not be kept for next time: %s", error)

    def _told(self, server: str, method: str, params: dict[str, Any]) -> None:
        for listener in tuple(self._on_notification):
            _safely(listener, server, method, params)


_KINDS = {
    "connecting": "connecting",
    "connected": "connected",
    "reconnecting": "reconnecting",
    "failed": "failed",
    "suspended": "failed",
    "idle": "disconnected",
}


def _configured(
    config: "MCPServerEntry | ServerSpec | dict[str, Any]", source: Source | None
) -> ServerSpec:
    if isinstance(config, ServerSpec):
        return config
    return ServerSpec(entry=read_entry(config), source=source or Source())


def _connection(
    supervisor: Supervisor, client: MCPClient, configured: ServerSpec
) -> MCPServerConnection:
    return MCPServerConnection(
        name=supervisor.name,
        client=client,
        generation=supervisor.generation,
        entry=configured.entry,
        source=configured.source,
        latency=supervisor.latency,
    )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _path(name: str, source: Source | None) -> str:
    return source.path if source is not None and source.path else f"mcp:{name}"


def _added(listeners: list[Any], listener: Any) -> Callable[[], None]:
    listeners.append(listener)

    def remove() -> None:
        if listener in listeners:
            listeners.remove(listener)

    return remove


def _safely(listener: Callable[..., Any], *news: Any) -> None:
    try:
        listener(*news)
    except Exception:  # the host's code
        log.exception("a listener failed")
