"""What a gateway has for those who look after it: journal, metrics, desk, tapes, tool lock."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..interceptor import Exchange, Interceptor
from ..observe.metrics import Metrics
from .interceptors.journaling import Journaling
from .interceptors.measuring import Measuring
from .interceptors.toollock import Policy, ToolLock, Whose
from .journal import Journal
from .lock_finding import finder_of, until_found_at
from .locking import Lock, LockFile
from .pausing import Desk
from .taping import Taping

if TYPE_CHECKING:
    from ..manager.manager import StatusEvent
    from .gateway import Gateway

__all__ = ["Observing"]


class Observing:
    """All of them; what is None is off and costs nothing."""

    def __init__(
        self,
        *,
        journal: Journal | None = None,
        metrics: Metrics | None = None,
        desk: Desk | None = None,
        tapes: Taping | None = None,
        lock: Lock | LockFile | None = None,
        lock_policy: Policy = "refuse",
    ) -> None:
        """`lock` is what tools of the servers were approved as; to `ask`, a desk is needed."""
        self.journal = journal
        self.metrics = metrics
        self.desk = desk
        self.tapes = tapes
        self._gateway: Gateway | None = None
        self._lock = None
        if lock is not None:
            self._lock = ToolLock(
                lock, lock_policy, find=self._find, wait=self._until_found, desk=desk
            )
        self._met: set[str] = set()  # servers that were connected before

    @property
    def interceptors(self) -> Sequence[Interceptor]:
        """What goes before all others."""
        found: list[Interceptor] = []
        if self.tapes is not None:
            found.append(self.tapes)  # first, where it sees all that comes
        if self.journal is not None:
            found.append(Journaling(self.journal))
        if self.metrics is not None:
            found.append(Measuring(self.metrics))
        if self._lock is not None:
            found.append(self._lock)
        return found

    def attend(self, gateway: "Gateway") -> list[Callable[[], None]]:
        """Count also what no message tells; what is returned ends that."""
        self._gateway = gateway
        ends = [] if self.tapes is None else [self.tapes.attend(gateway)]
        metrics = self.metrics
        if metrics is None:
            return ends

        def heard(event: "StatusEvent") -> None:
            for name in event.names if event.kind == "connected" else ():
                if name in self._met:
                    metrics.count("reconnects", name)
                self._met.add(name)

        metrics.gauge("clients", "Connections of clients.", lambda: gateway.clients)
        metrics.gauge(
            "servers_connected",
            "Servers that are connected.",
            lambda: len(gateway.manager.get_connected_servers()),
        )
        return [*ends, gateway.manager.add_status_listener(heard)]

    def _find(self, exchange: Exchange, name: str) -> Whose | None:
        return None if self._gateway is None else finder_of(self._gateway)(exchange, name)

    async def _until_found(self, exchange: Exchange, name: str) -> None:
        if self._gateway is not None:
            await until_found_at(self._gateway, exchange, name)

    def collect(self, gateway: "Gateway") -> Metrics | None:
        """The metrics, with what the connections have counted by themselves."""
        metrics = self.metrics
        if metrics is None:
            return None
        for name, peer in _peers(gateway):
            metrics.follow("malformed", name, peer, peer.malformed)
            metrics.follow("unknown_ids", name, peer, peer.strays)
        return metrics


def _peers(gateway: "Gateway") -> list[tuple[str, Any]]:
    """The connections to servers, each under a name that stays when it is made anew."""
    found: list[tuple[str, Any]] = []
    for member in gateway.members.values():
        for replica in member.replicas:
            own = gateway.manager.connections.get(replica.name)
            if own is not None:
                found.append((replica.name, own.client.transport.peer))
            shared = {peer for _, peer in found}
            links = [one for one in replica.relay.upstream.links if one.peer not in shared]
            found += [(f"{replica.name}/{n}", link.peer) for n, link in enumerate(links)]
    return found
