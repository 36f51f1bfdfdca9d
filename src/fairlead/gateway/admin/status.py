"""The state of a gateway and its servers as plain data."""

import time
from typing import Any, Final

from msgspec import Struct, field

from ...protocol.caller import Principal
from ...protocol.public_reason import owner_reason, public_reason
from ...protocol.revisions import Revision
from ...protocol.targets.list_kind import ListKind
from ...relay.bridge.parked_calls import ParkedCalls
from ...upstream.upstream import Upstream
from ...upstream.upstream_registry import UpstreamRegistry
from ..backends.backend import Member
from ..backends.registry import BackendRegistry
from ..catalog.merged_catalog import MergedCatalog
from ..catalog.views import ClientViews, View
from ..clients.client_registry import ClientRegistry

__all__ = ["GatewayStatus"]

# seconds that a shortage of descriptors or memory may last before the gateway is not ready
SHORTAGE_GRACE: Final = 5.0


class GatewayStatus(Struct, eq=False):
    """Status of a gateway: complete for its operator, limited to the view for clients."""

    info: dict[str, Any]
    upstreams: UpstreamRegistry
    registry: BackendRegistry
    catalog: MergedCatalog
    clients: ClientRegistry
    views: ClientViews
    parked: ParkedCalls
    since: float = field(default_factory=time.time)

    def full(self) -> dict[str, Any]:
        """Return the complete status, for the operator of the gateway."""
        return self._status(View.everything(), len(self.clients), public=False)

    def public(self, principal: Principal) -> dict[str, Any]:
        """Return the status that a client may see.

        Details that concern only the owner of a server, such as the exact reason of a failure, are
        left out. A client with a restricted view sees only its own connections, and no statistics
        about calls of other clients.
        """
        view = self.views.view_for(principal)
        if view == View.everything():
            return self._status(view, len(self.clients), public=True)
        clients = sum(1 for one in self.clients if one.principal == principal)
        found = self._status(view, clients, public=True)
        found["parked"] = None
        for server in found["servers"]:
            server["tools"] = self.catalog.own_count(ListKind.TOOLS, server["server"], view)
            server.update(dict.fromkeys(("calls", "errors", "latency_ms")))
        return found

    def health(self, principal: Principal) -> dict[str, Any]:
        """Return the health of the gateway with the number of servers in a client's view.

        A gateway without servers is healthy.
        """
        members = self.registry.within(self.views.view_for(principal))
        servers = [name for member in members for name in member.names]
        connected = set(self.upstreams.connected())
        return {
            "status": "ok",
            "servers": len(servers),
            "connected": sum(name in connected for name in servers),
        }

    def readiness(self) -> dict[str, Any]:
        """Return whether requests can be served, and which resources of this machine are exhausted.

        A gateway is ready once each server has listed its items or is known to be unavailable. A
        shortage of the machine counts only after `SHORTAGE_GRACE` seconds, because it may end soon.
        """
        shortage = self.upstreams.starts.shortage
        if shortage.error is None:
            return {"ready": self.registry.is_ready}
        ready = self.registry.is_ready and shortage.seconds < SHORTAGE_GRACE
        return {"ready": ready, "degraded": [f"out of {shortage.error.resource}"]}

    def _status(self, view: View, clients: int, *, public: bool) -> dict[str, Any]:
        members = sorted(self.registry.within(view), key=lambda member: member.name)
        shortage = self.upstreams.starts.shortage.error
        return {
            **self.info,
            "uptime": round(time.time() - self.since, 1),
            "clients": clients,
            "parked": len(self.parked),
            "shortage": None if shortage is None else shortage.resource,
            "counts": {kind.value: len(self.catalog.names(kind, view)) for kind in ListKind},
            "servers": [
                self._server(member, upstream, public)
                for member in members
                for upstream in member.upstreams
            ],
        }

    def _server(self, member: Member, upstream: Upstream, public: bool) -> dict[str, Any]:
        health = upstream.health
        assert health is not None  # set by `create_relay` for each upstream of a gateway
        reason = public_reason if public else owner_reason
        source = upstream.spec.source
        current = upstream.client
        revision = None if current is None else current.protocol_version
        error = None if upstream.status == "connected" else upstream.error
        if error is None and current is not None:
            # The server is connected, but its lists could not be read.
            error = member.error
        return {
            "name": upstream.name,
            "server": member.name,
            "status": upstream.status,
            "transport": upstream.spec.entry.type,
            "revision": revision,
            "era": _era(revision),
            "tools": len(self.catalog.own_names(ListKind.TOOLS, member.name)),
            "latency_ms": _milliseconds(health.latency),
            "connect_ms": _milliseconds(upstream.latency),
            "calls": health.calls,
            "errors": health.errors,
            "breaker": str(health.breaker.state),
            "connections": [] if public else upstream.describe_connections(),
            "source": source.provider_name,
            "path": None if public else source.path,
            "error": None if error is None else reason(error),
        }


def _era(version: str | None) -> str | None:
    if version is None:
        return None
    return "stateless" if Revision(version).stateless else "handshake"


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
