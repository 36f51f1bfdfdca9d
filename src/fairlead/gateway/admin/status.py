"""How a gateway and its servers are, as plain data."""

import time
from typing import TYPE_CHECKING, Any

from ...protocol.identity.principal import Principal
from ...protocol.public_reason import owner_reason, public_reason
from ...protocol.revisions import Revision
from ..catalog.list_kind import ListKind
from ..catalog.views import View

if TYPE_CHECKING:
    from ..backends.replica import Replica
    from ..gateway import Gateway

__all__ = ["health", "public_status", "status"]


def status(gateway: "Gateway") -> dict[str, Any]:
    """Return everything that there is to know, for the owner of the gateway."""
    return _status(gateway, View.everything(), gateway.clients, public=False)


def public_status(gateway: "Gateway", principal: Principal) -> dict[str, Any]:
    """Return what a status page shows to a client.

    It has nothing that only the owner of a server may know, such as why exactly it failed. A client
    that sees a part gets its own connections only, and nothing about the calls of others.
    """
    view = gateway.view_for(principal)
    if view == View.everything():
        return _status(gateway, view, gateway.clients, public=True)
    clients = sum(1 for one in gateway.visitors() if one.principal == principal)
    found = _status(gateway, view, clients, public=True)
    found["parked"] = None
    for server in found["servers"]:
        server["tools"] = gateway.catalog.own_count(ListKind.TOOLS, server["server"], view)
        server.update(dict.fromkeys(("calls", "errors", "latency_ms")))
    return found


def _status(gateway: "Gateway", view: View, clients: int, *, public: bool) -> dict[str, Any]:
    return {
        **gateway.info,
        "uptime": round(time.time() - gateway.since, 1),
        "clients": clients,
        "parked": len(gateway.parked),
        "counts": {kind.value: len(gateway.catalog.names(kind, view)) for kind in ListKind},
        "servers": [
            server
            for name in sorted(gateway.members)
            if view.includes(name)
            for server in _servers(gateway, name, public)
        ],
    }


def health(gateway: "Gateway", view: View) -> dict[str, Any]:
    """Whether the gateway lives; a server that is down is no illness of ours."""
    servers = [
        name
        for member in gateway.members.values()
        if view.includes(member.name)
        for name in member.names
    ]
    connected = set(gateway.manager.get_connected_servers())
    return {
        "status": "ok",
        "servers": len(servers),
        "connected": sum(name in connected for name in servers),
    }


def _servers(gateway: "Gateway", name: str, public: bool) -> list[dict[str, Any]]:
    member = gateway.members[name]
    return [_server(gateway, name, replica, public) for replica in member.replicas]


def _server(gateway: "Gateway", name: str, replica: "Replica", public: bool) -> dict[str, Any]:
    manager, member = gateway.manager, gateway.members[name]
    supervisor = manager.describe().get(replica.name)
    source = manager.get_source(replica.name)
    client = None if supervisor is None else supervisor.client
    error = None if supervisor is None else supervisor.error
    if error is None and client is not None:
        error = member.error  # it is there, but could not say what it has
    entry = manager.get_server_config(replica.name)
    return {
        "name": replica.name,
        "server": name,
        "status": "unknown" if supervisor is None else supervisor.state,
        "transport": None if entry is None else entry.type,
        "revision": None if client is None else client.protocol_version,
        "era": None if client is None else _era(client.protocol_version),
        "tools": len(gateway.catalog.own_names(ListKind.TOOLS, name)),
        "latency_ms": _milliseconds(replica.latency),
        "connect_ms": None if supervisor is None else _milliseconds(supervisor.latency),
        "calls": replica.calls,
        "errors": replica.errors,
        "breaker": str(replica.breaker.state),
        "source": None if source is None else source.provider_name,
        "path": None if source is None or public else source.path,
        "error": None if error is None else _why(error, public),
    }


def _why(error: BaseException, public: bool) -> str:
    return public_reason(error) if public else owner_reason(error)


def _era(version: str | None) -> str | None:
    if version is None:
        return None
    return "stateless" if Revision(version).stateless else "handshake"


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
