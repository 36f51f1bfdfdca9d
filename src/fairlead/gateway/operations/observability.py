"""Components for the operator of a gateway: journal, metrics, desk, tapes, tool lock."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...interceptor import Exchange, Interceptor
from ...observe.metrics import Metrics
from ...peer import Peer
from ...policy.actions.call_metrics import Measuring
from ...policy.actions.tool_lock import ToolLock, ToolLockPolicy, ToolOrigin
from ...policy.conditions.facts import ServerOf
from ...policy.hold_desk import HoldDesk
from ...policy.tool_lock.lock_file import LockFileWatcher, ToolLockData
from ...recording.journal import Journal
from ...recording.journal.journal_interceptor import Journaling
from ...redaction.redact_messages import Redactor
from ...transport.http.server.http_settings import HttpSettings
from ...transport.http.server.token_access import RequestRefusal
from ...upstream.upstream import Upstream
from ...upstream.upstream_registry import UpstreamRegistry
from ..clients.client_registry import ClientRegistry
from .tape_control import TapeControl, learn_secrets
from .tool_lock_lookup import ToolOriginLookup

__all__ = ["Observability"]


class Observability:
    """The components for the operator. A component that is None is disabled and costs nothing."""

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
        """`lock` contains the approved definitions of tools. The `lock_policy` "ask" needs a
        `desk`. `redactor` is the redactor of the journal and the desk, to which the secrets of
        connected servers are added.
        """
        self.journal = journal
        self.metrics = metrics
        self.desk = desk
        self.tapes = tapes
        self.redactor = redactor
        self._upstreams: UpstreamRegistry | None = None
        self._tools: ToolOriginLookup | None = None
        self._lock = None
        if lock is not None:
            self._lock = ToolLock(
                lock, lock_policy, find=self.find_tool, wait=self.until_found, desk=desk
            )

    @property
    def interceptors(self) -> Sequence[Interceptor]:
        """The interceptors that run before all others."""
        found: list[Interceptor] = []
        if self.tapes is not None:
            # The tape is first, so that it records all messages as clients sent and received them.
            found.append(self.tapes)
        if self.journal is not None:
            found.append(Journaling(self.journal))
        if self.metrics is not None:
            found.append(Measuring(self.metrics))
        return found

    @property
    def innermost(self) -> Sequence[Interceptor]:
        """The interceptors that run after all others."""
        # The lock compares names and definitions as the server sent them,
        # after all other interceptors have changed the request.
        return () if self._lock is None else (self._lock,)

    def observe_gateway(
        self,
        upstreams: UpstreamRegistry,
        clients: ClientRegistry,
        *,
        server_of: ServerOf,
        tools: ToolOriginLookup,
    ) -> list[Callable[[], None]]:
        """Observe a gateway, and return functions that end the observation."""
        self._upstreams, self._tools = upstreams, tools
        ends = [] if self.tapes is None else [self.tapes.observe_gateway(upstreams, server_of)]
        if self.redactor is not None:
            ends.append(learn_secrets(upstreams, self.redactor))
        if self.metrics is None:
            return ends
        self.metrics.gauge("clients", "Connections of clients.", lambda: len(clients))
        self.metrics.gauge(
            "servers_connected",
            "Servers that are connected.",
            lambda: len(upstreams.connected()),
        )
        self.metrics.labelled_gauge(
            "server_up",
            "1 if the server can be used: it is connected, or starts when it is used.",
            "server",
            lambda: {one.name: one.status in ("connected", "idle") for one in upstreams.values()},
        )
        self.metrics.labelled_gauge(
            "server_connections",
            "Open connections to the server.",
            "server",
            lambda: {one.name: len(one.pool.all_connections) for one in upstreams.values()},
        )
        self.metrics.labelled_gauge(
            "server_suspended",
            "Kinds of clients whose connections are suspended after too many losses.",
            "server",
            lambda: {one.name: len(one.describe_suspended()) for one in upstreams.values()},
        )
        self.metrics.gauge(
            "shortage",
            "1 while this machine lacks a resource that is needed to start servers.",
            lambda: upstreams.starts.shortage.error is not None,
        )
        return ends

    def count_refusals(self, settings: HttpSettings) -> HttpSettings:
        """Return HTTP settings with which refused requests are counted, if metrics are enabled."""
        metrics, before = self.metrics, settings.on_refused
        if metrics is None:
            return settings

        def count(refusal: RequestRefusal) -> None:
            metrics.refused(refusal.status, refusal.reason)
            if before is not None:
                before(refusal)

        return replace(settings, on_refused=count)

    def find_tool(self, exchange: Exchange, name: str) -> ToolOrigin | None:
        """Return the server and the definition of a tool, for a tool lock."""
        return None if self._tools is None else self._tools.find(exchange, name)

    async def until_found(self, exchange: Exchange, name: str) -> None:
        """Wait for the server that may have a tool."""
        if self._tools is not None:
            await self._tools.wait(exchange, name)

    def collect(self) -> Metrics | None:
        """Return the metrics, with the counters of the connections to servers."""
        metrics = self.metrics
        if metrics is None:
            return None
        for upstream in () if self._upstreams is None else self._upstreams.values():
            metrics.follow("reconnects", upstream.name, upstream, upstream.reconnects)
            for name, peer in _peers(upstream):
                metrics.follow("malformed", name, peer, peer.malformed)
                metrics.follow("unknown_ids", name, peer, peer.unmatched_count)
        return metrics


def _peers(upstream: Upstream) -> Iterator[tuple[str, Peer]]:
    """Yield the connections to a server by names that stay the same after a reconnect."""
    if upstream.current is not None:
        yield upstream.name, upstream.current.peer
    for number, connection in enumerate(upstream.pool.connections):
        yield f"{upstream.name}/{number}", connection.peer
