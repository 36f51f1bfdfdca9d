"""The servers of a gateway: how they come, do and go, and who has to hear of it."""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...client.server_entry import MCPServerEntry, read_entry
from ...errors import ConfigError, HttpError, ServerBusy, TransportError
from ...interceptor.circuit_breaker import CircuitBreaker
from ...manager.server_spec import ServerSpec
from ...manager.status_events import StatusEvent
from ...server.features.subscriptions import UPDATED
from ..catalog.list_kind import ListKind
from ..clients.upstream_subscriptions import Watching, log_failure
from ..server_endpoint import SingleServerEndpoint
from .backend import Member
from .replica import Replica
from .startup_calls import StillStarting

if TYPE_CHECKING:
    from ..gateway import Gateway

__all__ = ["BackendRegistry", "ServerEntry"]

ServerEntry: TypeAlias = ServerSpec | MCPServerEntry | dict[str, Any]

_SEPARATOR: Final = "#"  # between a name and the number of its replica
_NEWS: Final = {
    ListKind.TOOLS: "notifications/tools/list_changed",
    ListKind.PROMPTS: "notifications/prompts/list_changed",
    ListKind.RESOURCES: "notifications/resources/list_changed",
    ListKind.TEMPLATES: "notifications/resources/list_changed",
}


class BackendRegistry:
    """All servers of a gateway, by their names."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self.members: dict[str, Member] = {}
        self.watching = Watching(gateway.manager, self.members, gateway.start)
        self.doors: dict[str, SingleServerEndpoint] = {}
        self._owners: dict[str, Member] = {}  # by the names that the manager knows
        self._leaving: dict[str, asyncio.Task[Any]] = {}

    def owner(self, server: str) -> Member | None:
        """Whose a server of the manager is."""
        return self._owners.get(server)

    @property
    def servers(self) -> list[str]:
        """What the manager calls them, replicas too."""
        return list(self._owners)

    # Coming and going

    async def connect(self, servers: Mapping[str, ServerEntry | list[ServerEntry]]) -> None:
        """Raises `ConfigError` if an entry is wrong; then nothing has changed."""
        gateway = self._gateway
        while leaving := [self._leaving[name] for name in servers if name in self._leaving]:
            await asyncio.wait(leaving)  # or the end of the old one would take the new one along
        members, wanted = self._read(servers)
        for member in members:
            self.members[member.name] = member
            gateway.catalog.expect(member.name)
            self._owners.update((replica.name, member) for replica in member.replicas)
            self.doors[member.name] = SingleServerEndpoint(gateway, member)
            gateway.opened(member.name)
        await gateway.manager.connect_servers(wanted, startup="background")
        for member in members:
            if self.members.get(member.name) is member:  # nobody took it away meanwhile
                self._take_stock(member)

    def _read(
        self, servers: Mapping[str, ServerEntry | list[ServerEntry]]
    ) -> tuple[list[Member], dict[str, ServerSpec]]:
        wanted: dict[str, ServerSpec] = {}
        members: list[Member] = []
        for name, given in servers.items():
            if not name.strip("/"):
                raise ConfigError("A server needs a name")
            if name in self.members:
                raise ConfigError(f"There is a server {name!r} already; disconnect it first")
            replicas = []
            for number, entry in enumerate(given if isinstance(given, list) else [given]):
                own = name if number == 0 else f"{name}{_SEPARATOR}{number + 1}"
                if own in wanted or own in self._owners:
                    raise ConfigError(f"There are two servers {own!r}")
                known = (
                    entry if isinstance(entry, ServerSpec) else ServerSpec(entry=read_entry(entry))
                )
                wanted[own] = known
                replicas.append(self._replica(own, known))
            if not replicas:
                raise ConfigError(f"There is no entry for {name!r}")
            members.append(
                Member(name, replicas, self._gateway.catalog, partial(self._changed, server=name))
            )
        return members, wanted

    def _replica(self, name: str, configured: ServerSpec) -> Replica:
        gateway, settings = self._gateway, self._gateway.settings
        breaker = CircuitBreaker(
            failure_threshold=settings.failure_threshold,
            reset_timeout=settings.reset_timeout,
            name=name,
            counts=_is_failure,
        )
        return Replica(
            *(name, gateway.manager, configured, settings.relay),
            *(gateway.parked, gateway.quota, breaker),
            interceptors=gateway.interceptors,
        )

    def _take_stock(self, member: Member) -> None:
        """What is known of a server at once: that it is there, or its tools from last time."""
        manager = self._gateway.manager
        known = [manager.describe().get(replica.name) for replica in member.replicas]
        member.failed()
        if any(one is not None and one.state == "connected" for one in known):
            member.refresh()
        elif (remembered := manager.remembered(member.name)) is not None:
            member.remember(remembered)
        self._gateway.levels.came(member.names)

    def arrange(self, names: Iterable[str]) -> None:
        """The order of the servers: what several have is the first one's, whoever came first."""
        names = list(names)
        place = {name: number for number, name in enumerate(names)}
        in_order = sorted(self.members.items(), key=lambda one: place.get(one[0], len(place)))
        self.members.clear()
        self.members.update(in_order)
        for kind in self._gateway.catalog.arrange(names):
            self._changed(kind)

    async def disconnect(self, name: str) -> None:
        """Goes on to its end even if nobody waits for it."""
        if (member := self.members.pop(name, None)) is not None:
            leaving = self._gateway.start(self._take_away(member, self.doors.pop(name)))
            self._leaving[name] = leaving
            leaving.add_done_callback(lambda _: self._leaving.pop(name))
        if name in self._leaving:
            await asyncio.shield(self._leaving[name])

    async def _take_away(self, member: Member, door: SingleServerEndpoint) -> None:
        gateway, name = self._gateway, member.name
        member.retire()  # what it lists from here on would stay for ever
        for replica in member.replicas:
            self._owners.pop(replica.name, None)
        for kind in gateway.catalog.drop(name):
            self._changed(kind, name)
        self.watching.forget(member)
        for visitor in gateway.own_visitors():
            member.left(visitor)
        # Who waits for an answer gets one; only then do the connections to clients end.
        await door.end_streams()
        await member.close()
        ends = [gateway.manager.disconnect_server(replica.name) for replica in member.replicas]
        await asyncio.gather(*ends)
        await door.wait_until_idle()
        await gateway.shut(name)
        await door.close()

    async def wait_until_removed(self) -> None:
        """Wait until all that were taken away are gone."""
        if self._leaving:
            await asyncio.wait(self._leaving.values())

    def clear(self) -> None:
        for known in (self.members, self.doors, self._owners):
            known.clear()

    # What the manager tells

    def status(self, event: StatusEvent) -> None:
        for name in event.names:
            member = self._owners.get(name)
            if member is None:
                continue
            for replica in member.replicas:
                replica.lost()
                if event.kind == "connected" and replica.name == name:
                    self._gateway.start(log_failure(replica.adopt()))
            if event.kind == "connecting":
                member.begins()
            elif event.kind == "connected":
                member.connected()
                self.watching.connected(member, name)
                for uri in self.watching.uris(member):  # nobody told while it was away
                    self._gateway.changes.changed(UPDATED, uri)
            elif event.kind == "failed":
                member.failed()

    def heard(self, server: str, method: str, params: dict[str, Any]) -> None:
        member = self._owners.get(server)
        if member is None:
            return
        uri = params.get("uri")
        self._gateway.hearsay.add(server, method, params)
        if method.endswith("/list_changed"):
            member.heard(server, method)
        elif method == UPDATED and isinstance(uri, str):
            for watched in self.watching.uris(member, uri):
                self._gateway.changes.changed(UPDATED, watched)

    def _changed(self, kind: ListKind, server: str | None = None) -> None:
        """A list has changed; if it is because of one server, who does not see it is not told."""
        gateway = self._gateway
        audience = None if server is None else gateway.audience_of(server)
        if audience is None:
            gateway.changes.changed(_NEWS[kind])
        else:
            gateway.changes.changed_for(audience, _NEWS[kind])


# Statuses with which a server rejects what one client sent. Counted as failures of the server, they
# would let that client open the circuit breaker for all others.
_REJECTED = frozenset({400, 405, 406, 411, 413, 414, 415, 417, 422, 431})


def _is_failure(exc: BaseException) -> bool:
    """Return True for errors that count against a server: not for its refusals or a slow start."""
    if isinstance(exc, HttpError) and exc.status in _REJECTED:
        return False
    return isinstance(exc, TransportError) and not isinstance(exc, StillStarting | ServerBusy)
