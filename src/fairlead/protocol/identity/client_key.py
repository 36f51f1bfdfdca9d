"""Keys that identify a client by facts it cannot choose.

Limits per client use these keys: the principal of an authenticated client, and the network address
of an anonymous client.
"""

from functools import lru_cache

from ..caller import ANONYMOUS, Principal
from ..envelope import TransportContext

__all__ = ["client_key", "connection_key", "network_of"]

_NETWORK = ("http", "sse", "websocket")
# The lower bits of an IPv6 address, which a site can choose freely (RFC 4291, section 2.5.1).
_HOST_BITS = 64


def client_key(principal: Principal, address: str | None) -> str:
    """Return the key of a network client; a principal and an address never have the same key.

    Anonymous clients on a local socket have no address and count as one client.
    """
    if principal is not ANONYMOUS:
        # The prefix separates names from addresses: a client's name may look like an address.
        return f"principal:{principal}"
    return "address:" if address is None else f"address:{network_of(address)}"


def connection_key(principal: Principal, transport: TransportContext, connection: object) -> str:
    """Return the key of a client on any transport.

    Over a pipe or in the same process, an anonymous client is identified by its connection, because
    it cannot open further connections.
    """
    if principal is not ANONYMOUS or transport.peer_address is not None:
        return client_key(principal, transport.peer_address)
    if transport.transport_type in _NETWORK:
        return client_key(principal, None)
    return f"connection:{id(connection)}"


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """Return the network that counts as one client: an IPv4 address, or the /64 of an IPv6 address.

    The port is removed, because it differs between connections. Anything else (a name, a path) is
    returned unchanged.
    """
    # Imported here, because stdio clients have no address and do not need it.
    from ipaddress import IPv6Address, ip_address

    host, _, _ = address.rpartition(":")
    # The text after a colon may be a part of an IPv6 address instead of a port.
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
