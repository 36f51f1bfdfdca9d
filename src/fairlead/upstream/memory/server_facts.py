"""What is known about a server beyond its era, because it was tried."""

from msgspec import Struct

__all__ = ["ServerFacts"]


class ServerFacts(Struct, frozen=True):
    """What is known about a server beyond its era."""

    is_single: bool = False  # a second process exits at its start
    asks_roots: bool = False  # it asks clients for their roots
    asks_roots_early: bool = False  # before their first call
    no_handshake: bool = False  # it refuses `initialize`
