"""The state of a gateway and its servers as plain data."""

import time
from shlex import quote
from typing import Any, Final

from ...errors import LoginRequired
from ...protocol.caller import Principal
from ...protocol.public_reason import owner_reason, public_reason
from ...protocol.revisions import Revision
from ...protocol.targets.list_kind import ListKind
from ...relay.bridge.parked_calls import ParkedCalls
from ...transport.http.server.sessions.session_store import SessionStoreBase
from ...upstream.upstream import Upstream
from ...upstream.upstream_registry import UpstreamRegistry
from ..backends.backend import Member
from ..backends.registry import BackendRegistry
from ..catalog.merged_catalog import MergedCatalog
from ..catalog.views import ClientViews, View
from ..clients.client_registry import ClientRegistry

__all__ = ["GatewayStatus"]

# seconds of a shortage of descriptors or memory after which the gateway reports "not ready"
SHORTAGE_GRACE: Final = 5.0
# seconds that a gateway waits for its slowest servers before it is ready without them
STARTUP_GRACE: Final = 5.0
# seconds in which a lost server counts as usable, because calls wait until it is connected again
RECONNECT_GRACE: Final = 5.0
_UNUSABLE: Final = frozenset({"connecting", "reconnecting", "suspended", "failed"})


class GatewayStatus:
    """Status of a gateway: complete for its operator, limited to the view for clients."""

    def __init__(
        self,
        info: dict[str, Any],
        *,
        upstreams: UpstreamRegistry,
        registry: BackendRegistry,
        catalog: MergedCatalog,
        clients: ClientRegistry,
        views: ClientViews,
        parked: ParkedCalls,
    ) -> None:
        self._info = info
        self._upstreams = upstreams
        self._registry = registry
        self._catalog = catalog
        self._clients = clients
        self._views = views
        self._parked = parked
        self._since = time.time()
        self._has_started = False
        self._stores: set[SessionStoreBase] = set()

    def follow(self, store: object) -> None:
        """Include the shortages of a session store in the status from now on."""
        if isinstance(store, SessionStoreBase):
            self._stores.add(store)

    @property
    def _shortage(self) -> str | None:
        """The resource that this machine lacks for new processes or sessions, or None."""
        errors = [self._upstreams.starts.shortage.error, *(one.shortage for one in self._stores)]
        return next((error.resource for error in errors if error is not None), None)

    def full(self) -> dict[str, Any]:
        """Return the complete status, for the operator of the gateway."""
        return self._status(View.everything(), len(self._clients), public=False)

    def public(self, principal: Principal) -> dict[str, Any]:
        """Return the status that a client may see.

        Details that concern only the owner of a server, such as the exact reason for a failure, are
        left out. A client with a restricted view sees only its own connections, and no statistics
        about calls of other clients.
        """
        view = self._views.view_for(principal)
        if view == View.everything():
            return self._status(view, len(self._clients), public=True)
        clients = sum(1 for one in self._clients if one.principal == principal)
        found = self._status(view, clients, public=True)
        found["parked"] = None
        for server in found["servers"]:
            server["tools"] = self._catalog.own_count(ListKind.TOOLS, server["server"], view)
            server.update(dict.fromkeys(("calls", "errors", "latency_ms")), suspended=[])
        return found

    def health(self, principal: Principal) -> dict[str, Any]:
        """Return the health of the gateway with the number of servers in a client's view.

        A gateway without servers is healthy.
        """
        members = self._registry.within(self._views.view_for(principal))
        servers = [name for member in members for name in member.names]
        connected = set(self._upstreams.connected())
        return {
            "status": "ok",
            "servers": len(servers),
            "connected": sum(name in connected for name in servers),
        }

    @property
    def is_ready(self) -> bool:
        """True if requests can be served: if a server is usable, or none is configured.

        At start-up, the gateway waits until each server has listed its items or has failed, at most
        `STARTUP_GRACE` seconds. A shortage of descriptors or memory that lasts `SHORTAGE_GRACE`
        seconds makes the gateway unready.
        """
        if self._upstreams.starts.shortage.seconds >= SHORTAGE_GRACE:
            return False
        members = self._registry.members.values()
        if not members:
            return True
        self._has_started = self._has_started or self._has_settled()
        return self._has_started and any(_is_usable(member) for member in members)

    def _has_settled(self) -> bool:
        now = time.monotonic()
        # Tools that are remembered from the last run do not show that a server works.
        return not any(
            member.awaits_introduction and now - member.began < STARTUP_GRACE
            for member in self._registry.members.values()
        )

    def readiness(self, principal: Principal) -> dict[str, Any]:
        """Return whether requests can be served, and the restrictions that a client may see.

        `degraded` lists the configured servers of the client's view that cannot be used. `shortage`
        names the resource that this machine lacks.
        """
        return {
            "ready": self.is_ready,
            "degraded": [
                upstream.name
                for member in self._registry.within(self._views.view_for(principal))
                for upstream in member.upstreams
                if upstream.status in _UNUSABLE
                or (upstream.status == "connected" and member.error is not None)
            ],
            "shortage": self._shortage,
        }

    def _status(self, view: View, clients: int, *, public: bool) -> dict[str, Any]:
        members = sorted(self._registry.within(view), key=lambda member: member.name)
        return {
            **self._info,
            "uptime": round(time.time() - self._since, 1),
            "clients": clients,
            "parked": len(self._parked),
            "shortage": self._shortage,
            "counts": {kind.value: len(self._catalog.names(kind, view)) for kind in ListKind},
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
        revision = upstream.revision
        error = None if upstream.status == "connected" else upstream.error
        if error is None and revision is not None:
            # The server is connected, but its lists could not be read.
            error = member.error
        return {
            "name": upstream.name,
            "server": member.name,
            "status": upstream.status,
            "since": _utc(upstream.since.wall),
            "transport": upstream.spec.entry.type,
            "revision": None if revision is None else revision.value,
            "era": _era(revision),
            "tools": len(self._catalog.own_names(ListKind.TOOLS, member.name)),
            "latency_ms": _milliseconds(health.latency),
            "connect_ms": _milliseconds(upstream.latency),
            "calls": health.calls,
            "errors": health.errors,
            "breaker": str(health.breaker.state),
            "connections": [] if public else upstream.describe_connections(),
            "suspended": _suspended(upstream, public),
            "source": source.provider_name,
            "path": None if public else source.path,
            "error": None if error is None else reason(error),
            "remedy": _remedy(upstream),
        }


def _is_usable(member: Member) -> bool:
    """Return True if calls of a server can succeed now, or as soon as it has started for them."""
    return any(
        upstream.status == "idle"  # starts when it is used
        or (upstream.status == "connected" and (member.error is None or member.known))
        or (
            upstream.status == "reconnecting"
            and time.monotonic() - upstream.since.steady < RECONNECT_GRACE
        )
        for upstream in member.upstreams
    )


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _remedy(upstream: Upstream) -> str | None:
    """Return the command that connects a server again, if the gateway does not try it itself."""
    unusable = upstream.status in ("suspended", "failed") or upstream.state == "suspended"
    if not unusable or isinstance(upstream.error, LoginRequired):
        return None  # the error of a missing login contains the command for the login
    return f"fairlead mcp reconnect {quote(upstream.name)}"


def _era(revision: Revision | None) -> str | None:
    if revision is None:
        return None
    return "stateless" if revision.stateless else "handshake"


def _suspended(upstream: Upstream, public: bool) -> list[dict[str, Any]]:
    """Return the suspended keys; without the properties of their clients if `public`."""
    keys = upstream.describe_suspended()
    shown = ("default", "losses", "seconds")
    return [{name: key[name] for name in shown} for key in keys] if public else keys


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
