"""Which client a request comes from, as far as the client cannot choose that itself.

Limits per client are counted by these keys: by the principal of a client that was authenticated,
and by the network address of an anonymous one.
"""

from functools import lru_cache

from ..envelope import TransportContext
from .principal import Principal

__all__ = ["client_key", "connection_key", "network_of"]

_NETWORK = ("http", "sse", "websocket")
_HOST_BITS = 64  # of an IPv6 address: a site can choose them freely (RFC 4291, section 2.5.1)


def client_key(principal: Principal, address: str | None) -> str:
    """Return the key of a client on the network; no principal has the key of an address.

    Anonymous clients of a local socket have no address and are one client.
    """
    if isinstance(principal, str):
        return f"principal:{principal}"
    return "address:" if address is None else f"address:{network_of(address)}"


def connection_key(principal: Principal, transport: TransportContext, connection: object) -> str:
    """Return the key of a client on any transport.

    Over a pipe, or in the same process, an anonymous client is its connection: it cannot open
    another one.
    """
    if isinstance(principal, str) or transport.peer_address is not None:
        return client_key(principal, transport.peer_address)
    if transport.transport_type in _NETWORK:
        return client_key(principal, None)
    return f"connection:{id(connection)}"


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """Return what stands for one client in limits: an IPv4 address, or the /64 of an IPv6 one.

    A port is left out, because each connection has another one. Other texts (a name, a path) stand
    for themselves.
    """
    from ipaddress import IPv6Address, ip_address  # clients of pipes have no address

    host, _, _ = address.rpartition(":")
    # What follows a colon may be a part of an IPv6 address, and no port.
    if not host or (":" in host and not host.endswith("]")):
        host = address
    try:
        found = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{IPv6Address(int(found) >> _HOST_BITS << _HOST_BITS)}/{128 - _HOST_BITS}"
