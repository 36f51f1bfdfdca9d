"""How a gateway and its servers are, as plain data."""

import time
from typing import TYPE_CHECKING, Any

from .catalog import Kind

if TYPE_CHECKING:
    from .gateway import Gateway
    from .member import Replica

__all__ = ["health", "is_ready", "status"]


def status(gateway: "Gateway") -> dict[str, Any]:
    """Everything that a status page shows."""
    return {
        **gateway.info,
        "uptime": round(time.time() - gateway.since, 1),
        "clients": gateway.clients,
        "parked": len(gateway.parked),
        "counts": {kind.value: gateway.catalog.count(kind) for kind in Kind},
        "servers": [
            server for name in sorted(gateway.members) for server in _servers(gateway, name)
        ],
    }


def health(gateway: "Gateway") -> dict[str, Any]:
    """Whether the gateway lives; a server that is down is no illness of ours."""
    states = [server["status"] for server in status(gateway)["servers"]]
    return {"status": "ok", "servers": len(states), "connected": states.count("connected")}


def is_ready(gateway: "Gateway") -> bool:
    """Whether every server is there, or known not to be."""
    return all(member.listed.is_set() for member in gateway.members.values())


def _servers(gateway: "Gateway", name: str) -> list[dict[str, Any]]:
    member = gateway.members[name]
    return [_server(gateway, name, replica) for replica in member.replicas]


def _server(gateway: "Gateway", name: str, replica: "Replica") -> dict[str, Any]:
    manager, member = gateway.manager, gateway.members[name]
    supervisor = manager.describe().get(replica.name)
    source = manager.get_source(replica.name)
    client = None if supervisor is None else supervisor.client
    error = (None if supervisor is None else supervisor.error) or member.error
    entry = manager.get_server_config(replica.name)
    return {
        "name": replica.name,
        "server": name,
        "status": "unknown" if supervisor is None else supervisor.state,
        "transport": None if entry is None else entry.type,
        "revision": None if client is None else client.protocol_version,
        "era": None if client is None else _era(client.protocol_version),
        "tools": len(gateway.catalog.own_names(Kind.TOOLS, name)),
        "latency_ms": _milliseconds(replica.latency),
        "connect_ms": None if supervisor is None else _milliseconds(supervisor.latency),
        "calls": replica.calls,
        "errors": replica.errors,
        "breaker": str(replica.breaker.state),
        "source": None if source is None else source.provider_name,
        "path": None if source is None else source.path,
        "error": None if error is None else str(getattr(error, "summary", None) or error),
    }


def _era(version: str | None) -> str | None:
    if version is None:
        return None
    return "stateless" if version >= "2026-07-28" else "handshake"


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
