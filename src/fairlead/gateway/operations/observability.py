"""What a gateway has for those who look after it: journal, metrics, desk, tapes, tool lock."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...interceptor import Exchange, Interceptor
from ...observe.metrics import Metrics
from ...policy.actions.metrics import Measuring
from ...policy.actions.tool_lock import ToolLock, ToolLockPolicy, ToolOrigin
from ...policy.hold_desk import HoldDesk
from ...policy.tool_lock import LockFileWatcher, ToolLockData
from ...recording.journal import Journal
from ...recording.journal.journal_interceptor import Journaling
from ...redaction.redact_messages import Redactor
from .tape_control import TapeControl, learn_secrets
from .tool_lock_lookup import tool_finder, tool_waiter

if TYPE_CHECKING:
    from ...manager.status_events import StatusEvent
    from ..gateway import Gateway

__all__ = ["Observability"]


class Observability:
    """All of them; what is None is off and costs nothing."""

    def __init__(
        self,
        *,
        journal: Journal | None = None,
        metrics: Metrics | None = None,
        desk: HoldDesk | None = None,
        tapes: TapeControl | None = None,
        lock: ToolLockData | LockFileWatcher | None = None,
        lock_policy: ToolLockPolicy = "refuse",
        redactor: Redactor | None = None,
    ) -> None:
        """`lock` is what tools of the servers were approved as; to `ask`, a desk is needed. The
        `redactor` of the journal and the desk is told the secrets of servers that are connected.
        """
        self.journal = journal
        self.metrics = metrics
        self.desk = desk
        self.tapes = tapes
        self.redactor = redactor
        self._gateway: Gateway | None = None
        self._lock = None
        if lock is not None:
            self._lock = ToolLock(
                lock, lock_policy, find=self.find_tool, wait=self.until_found, desk=desk
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
        return found

    @property
    def innermost(self) -> Sequence[Interceptor]:
        """What goes behind all others: a lock knows tools by the names that nobody has changed."""
        return () if self._lock is None else (self._lock,)

    def observe_gateway(self, gateway: "Gateway") -> list[Callable[[], None]]:
        """Count also what no message tells; what is returned ends that."""
        self._gateway = gateway
        ends = [] if self.tapes is None else [self.tapes.observe_gateway(gateway)]
        if self.redactor is not None:
            ends.append(learn_secrets(gateway, self.redactor))
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

    def find_tool(self, exchange: Exchange, name: str) -> ToolOrigin | None:
        """Whose a tool is, for a tool lock."""
        return None if self._gateway is None else tool_finder(self._gateway)(exchange, name)

    async def until_found(self, exchange: Exchange, name: str) -> None:
        """Wait for the server that a tool may be of."""
        if self._gateway is not None:
            await tool_waiter(self._gateway, exchange, name)

    def collect(self, gateway: "Gateway") -> Metrics | None:
        """The metrics, with what the connections have counted by themselves."""
        metrics = self.metrics
        if metrics is None:
            return None
        for name, peer in _peers(gateway):
            metrics.follow("malformed", name, peer, peer.malformed)
            metrics.follow("unknown_ids", name, peer, peer.unmatched_count)
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
