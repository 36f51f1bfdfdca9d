"""The part of a network address that a client cannot change at will."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address

__all__ = ["network_of"]

_HOST_BITS = 64  # of an IPv6 address: a site can choose them freely (RFC 4291, section 2.5.1)


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """Return what stands for one client in limits: an IPv4 address, or the /64 of an IPv6 one.

    Other texts (a name, a path) stand for themselves.
    """
    try:
        found = ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{IPv6Address(int(found) >> _HOST_BITS << _HOST_BITS)}/{128 - _HOST_BITS}"
