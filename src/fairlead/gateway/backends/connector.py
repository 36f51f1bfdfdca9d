"""Adding servers to a gateway, and removing them while clients use them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from ...client.server_entry import MCPServerEntry, read_entry
from ...config.server_spec import ServerSpec, entries_by_name
from ...errors import ConfigError
from ...relay.relay import Relay
from ...relay.replicas import Replicas
from ...relay.round_state import RoundStates
from ...transport.background_tasks import BackgroundTasks
from ...upstream.upstream import Upstream
from ..catalog.merged_catalog import MergedCatalog
from ..clients.client_registry import ClientRegistry
from ..clients.log_levels import LogLevels
from ..clients.upstream_subscriptions import UpstreamSubscriptions
from ..server_endpoint import SingleServerEndpoint
from .backend import Member
from .gateway_servers import ServerSource
from .registry import BackendRegistry
from .upstream_events import UpstreamEvents

__all__ = ["BackendConnector", "ServerEntry"]

ServerEntry: TypeAlias = ServerSpec | MCPServerEntry | dict[str, Any]

_SEPARATOR: Final = "#"  # separates server name and replica number


class BackendConnector(Struct, eq=False):
    """Connector that adds members to the registry, connects their servers, and removes them.

    `added` is called with the name of a new member, whose endpoint must be served from then on.
    `removed` is called once an endpoint must no longer be served.
    """

    servers: ServerSource
    catalog: MergedCatalog
    registry: BackendRegistry
    new_relay: Callable[[Upstream], Relay]
    new_endpoint: Callable[[Member], SingleServerEndpoint]
    added: Callable[[str], None]
    removed: Callable[[str], Awaitable[None]]
    events: UpstreamEvents
    subscriptions: UpstreamSubscriptions
    log_levels: LogLevels
    clients: ClientRegistry
    tasks: BackgroundTasks
    _states: RoundStates = field(default_factory=RoundStates)
    _leaving: dict[str, asyncio.Task[None]] = {}

    async def connect(self, servers: Mapping[str, ServerEntry | list[ServerEntry]]) -> None:
        """Add servers. Several entries under one name are replicas of one server.

        Raises:
            ConfigError: An entry is invalid. Nothing has changed.
            TypeError: `servers` is not a mapping.
        """
        servers = entries_by_name(servers)
        while leaving := [self._leaving[name] for name in servers if name in self._leaving]:
            # A running removal must end first, or it would remove the new server of the same name.
            await asyncio.wait(leaving)
        specs = self._read(servers)
        self.servers.add_servers({own: one for of in specs.values() for own, one in of.items()})
        for name, replicas in specs.items():
            self._add(name, list(replicas))

    def _read(
        self, servers: Mapping[str, ServerEntry | list[ServerEntry]]
    ) -> dict[str, dict[str, ServerSpec]]:
        """Return the replicas of each name, by the names of their upstreams."""
        found: dict[str, dict[str, ServerSpec]] = {}
        known: set[str] = set()
        for name, given in servers.items():
            if not name.strip("/"):
                raise ConfigError(
                    f"invalid server name {name!r}: expected at least one character besides `/`"
                )
            if name in self.registry.members:
                raise ConfigError(f"server {name!r} already exists: disconnect it first")
            replicas = found[name] = {}
            for number, entry in enumerate(given if isinstance(given, list) else [given]):
                own = name if number == 0 else f"{name}{_SEPARATOR}{number + 1}"
                if own in known or self.registry.owner(own) is not None:
                    raise ConfigError(f"duplicate server name {own!r}")
                known.add(own)
                replicas[own] = (
                    entry if isinstance(entry, ServerSpec) else ServerSpec(entry=read_entry(entry))
                )
            if not replicas:
                raise ConfigError(f"server {name!r} has no entry: expected at least one")
        return found

    def _add(self, name: str, servers: list[str]) -> None:
        """Add a member for servers that were just added, and apply their current state."""
        upstreams = [self.servers.upstreams[own] for own in servers]
        changed = partial(self.events.list_changed, server=name)
        relays = [self.new_relay(upstream) for upstream in upstreams]
        for upstream, relay in zip(upstreams, relays, strict=True):
            upstream.pool.on_connection = partial(self.events.connection_opened, upstream)
            relay.sees_default = partial(self.events.comparison.sees_default, upstream)
        member = Member(name, Replicas(name, relays, self._states), self.catalog, changed)
        # Called before any list arrives, so that servers keep the order of their entries.
        self.catalog.expect(name)
        self.registry.add(member, self.new_endpoint(member))
        self.added(name)
        # A manager's upstream may have failed or listed its items before this call.
        member.failed()
        if (remembered := self.servers.remembered(name)) is not None:
            member.remember(remembered)
        for upstream in upstreams:
            member.update(upstream)
        self.log_levels.apply_to(member.upstreams)

    def arrange(self, names: Iterable[str]) -> None:
        """Set the order of the servers. If several list the same URI, the first of them owns it."""
        names = list(names)
        self.registry.arrange(names)
        for kind in self.catalog.arrange(names):
            self.events.list_changed(kind)

    async def disconnect(self, name: str) -> None:
        """Remove a server. The removal continues if the caller is cancelled."""
        if (removed := self.registry.remove(name)) is not None:
            leaving = self.tasks.start(self._remove(*removed))
            self._leaving[name] = leaving
            leaving.add_done_callback(lambda _: self._leaving.pop(name))
        if name in self._leaving:
            await asyncio.shield(self._leaving[name])

    async def _remove(self, member: Member, endpoint: SingleServerEndpoint) -> None:
        name = member.name
        # Must precede the removal of the lists: a list that arrives later would never be removed.
        member.retire()
        for kind in self.catalog.drop(name):
            self.events.list_changed(kind, name)
        self.subscriptions.forget(member)
        for client in list(self.clients.merged.values()):
            member.replicas.leave(client)
        # Pending requests are answered before the connections of clients are closed.
        await endpoint.end_streams()
        await member.close()
        ends = [self.servers.disconnect_server(own) for own in member.names]
        await asyncio.gather(*ends)
        await endpoint.wait_until_idle()
        await self.removed(name)
        await endpoint.close()

    async def wait_until_removed(self) -> None:
        """Wait until all removals are complete."""
        if self._leaving:
            await asyncio.wait(self._leaving.values())
