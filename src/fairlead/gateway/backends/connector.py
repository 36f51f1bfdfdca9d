"""How servers are added to a gateway, and removed from it while clients use them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from ...client.server_entry import MCPServerEntry, read_entry
from ...config.server_spec import ServerSpec
from ...errors import ConfigError
from ...relay.replicas import Replicas
from ...relay.round_state import RoundStates
from ..background_tasks import BackgroundTasks
from ..catalog.merged_catalog import MergedCatalog
from ..clients.client_registry import ClientRegistry
from ..clients.log_levels import LogLevels
from ..clients.upstream_subscriptions import UpstreamSubscriptions
from ..server_endpoint import SingleServerEndpoint
from .backend import Member
from .gateway_servers import ServerSource
from .registry import BackendRegistry
from .relay_factory import RelayFactory
from .upstream_events import UpstreamEvents

__all__ = ["BackendConnector", "ServerEntry"]

ServerEntry: TypeAlias = ServerSpec | MCPServerEntry | dict[str, Any]

_SEPARATOR: Final = "#"  # between a name and the number of its replica


class BackendConnector:
    """Adds members to the registry, connects their servers, and removes them again."""

    def __init__(
        self,
        servers: ServerSource,
        catalog: MergedCatalog,
        registry: BackendRegistry,
        *,
        relays: RelayFactory,
        new_endpoint: Callable[[Member], SingleServerEndpoint],
        added: Callable[[str], None],
        removed: Callable[[str], Awaitable[None]],
        events: UpstreamEvents,
        subscriptions: UpstreamSubscriptions,
        log_levels: LogLevels,
        clients: ClientRegistry,
        tasks: BackgroundTasks,
    ) -> None:
        """`added` and `removed` are called with the name of a member whose endpoint is to be served
        from now on, or no longer."""
        self._servers = servers
        self._catalog = catalog
        self._registry = registry
        self._relays = relays
        self._states = RoundStates()
        self._new_endpoint = new_endpoint
        self._added = added
        self._removed = removed
        self._events = events
        self._subscriptions = subscriptions
        self._log_levels = log_levels
        self._clients = clients
        self._tasks = tasks
        self._leaving: dict[str, asyncio.Task[None]] = {}

    async def connect(self, servers: Mapping[str, ServerEntry | list[ServerEntry]]) -> None:
        """Add servers; several entries under one name are its replicas.

        Raises:
            ConfigError: An entry is invalid; then nothing has changed.
        """
        while leaving := [self._leaving[name] for name in servers if name in self._leaving]:
            await asyncio.wait(leaving)  # or the end of the old one would remove the new one
        specs = self._read(servers)
        self._servers.add_servers({own: one for of in specs.values() for own, one in of.items()})
        for name, replicas in specs.items():
            self._add(name, list(replicas))

    def _read(
        self, servers: Mapping[str, ServerEntry | list[ServerEntry]]
    ) -> dict[str, dict[str, ServerSpec]]:
        """Return the replicas of each name."""
        found: dict[str, dict[str, ServerSpec]] = {}
        known: set[str] = set()
        for name, given in servers.items():
            if not name.strip("/"):
                raise ConfigError("A server needs a name")
            if name in self._registry.members:
                raise ConfigError(f"There is a server {name!r} already; disconnect it first")
            replicas = found[name] = {}
            for number, entry in enumerate(given if isinstance(given, list) else [given]):
                own = name if number == 0 else f"{name}{_SEPARATOR}{number + 1}"
                if own in known or self._registry.owner(own) is not None:
                    raise ConfigError(f"There are two servers {own!r}")
                known.add(own)
                replicas[own] = (
                    entry if isinstance(entry, ServerSpec) else ServerSpec(entry=read_entry(entry))
                )
            if not replicas:
                raise ConfigError(f"There is no entry for {name!r}")
        return found

    def _add(self, name: str, servers: list[str]) -> None:
        """Add a member whose servers have just been added, and what is known of them."""
        upstreams = [self._servers.upstreams[own] for own in servers]
        changed = partial(self._events.list_changed, server=name)
        relays = [self._relays.create(upstream) for upstream in upstreams]
        for upstream, relay in zip(upstreams, relays, strict=True):
            upstream.pool.on_connection = partial(self._events.connection_opened, upstream)
            relay.sees_default = partial(self._events.sees_default, upstream)
        member = Member(name, Replicas(name, relays, self._states), self._catalog, changed)
        self._catalog.expect(name)
        self._registry.add(member, self._new_endpoint(member))
        self._added(name)
        member.failed()
        if (remembered := self._servers.remembered(name)) is not None:
            member.remember(remembered)
        for upstream in upstreams:
            member.update(upstream)
        self._log_levels.apply_to(member.names)

    def arrange(self, names: Iterable[str]) -> None:
        """Set the order of the servers: the first one owns what several of them list."""
        names = list(names)
        self._registry.arrange(names)
        for kind in self._catalog.arrange(names):
            self._events.list_changed(kind)

    async def disconnect(self, name: str) -> None:
        """Remove a server. The removal goes on if the caller is cancelled."""
        if (removed := self._registry.remove(name)) is not None:
            leaving = self._tasks.start(self._remove(*removed))
            self._leaving[name] = leaving
            leaving.add_done_callback(lambda _: self._leaving.pop(name))
        if name in self._leaving:
            await asyncio.shield(self._leaving[name])

    async def _remove(self, member: Member, endpoint: SingleServerEndpoint) -> None:
        name = member.name
        member.retire()  # a list that it adds from here on would stay for ever
        for kind in self._catalog.drop(name):
            self._events.list_changed(kind, name)
        self._subscriptions.forget(member)
        for client in list(self._clients.merged.values()):
            member.replicas.leave(client)
        # Pending requests are answered first; only then do the connections of clients end.
        await endpoint.end_streams()
        await member.close()
        ends = [self._servers.disconnect_server(own) for own in member.names]
        await asyncio.gather(*ends)
        await endpoint.wait_until_idle()
        await self._removed(name)
        await endpoint.close()

    async def wait_until_removed(self) -> None:
        """Wait until all servers that were disconnected are gone."""
        if self._leaving:
            await asyncio.wait(self._leaving.values())
