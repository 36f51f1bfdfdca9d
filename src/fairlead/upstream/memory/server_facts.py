"""Facts about a server beyond its era, found by experience."""

from msgspec import Struct

__all__ = ["ServerFacts"]


class ServerFacts(Struct, frozen=True):
    """Facts about a server beyond its era."""

    is_single: bool = False  # a second process exits during its start
    asks_roots: bool = False  # requests the roots of clients
    asks_roots_early: bool = False  # before the first call of a client
    no_handshake: bool = False  # refuses `initialize`
