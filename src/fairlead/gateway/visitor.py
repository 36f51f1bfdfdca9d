"""A client of a gateway, and its standing with each server behind it."""

from msgspec import Raw

from ..peer import Peer
from ..wire import Notification
from .front import Front
from .link import Link
from .outbox import PeerOutbox

__all__ = ["Visitor"]


class Visitor:
    """One client on a connection that outlives its requests."""

    def __init__(self, principal: str | None, input_timeout: float) -> None:
        self.principal = principal
        self.peer: Peer  # set right after, because the peer needs us first
        self.introduction: Raw | None = None  # the params of its `initialize`
        self.level: str | None = None
        self.uris: set[str] = set()
        self.fronts: dict[object, Front] = {}  # by the relay that serves it
        self._outbox: PeerOutbox
        self._input_timeout = input_timeout

    def connect(self, peer: Peer) -> None:
        self.peer = peer
        self._outbox = PeerOutbox(peer)

    def front(self, relay: object) -> Front:
        """Its standing with one server."""
        front = self.fronts.get(relay)
        if front is None:
            front = self.fronts[relay] = _MergedFront(self.principal, self._input_timeout)
            front.peer, front.outbox = self.peer, self._outbox
            front.introduction = self.introduction
        front.level = self.level
        return front

    def close(self) -> None:
        self._outbox.close()


class _MergedFront(Front):
    """One of several servers behind one endpoint. Changes are told by the gateway, once its own
    lists have them."""

    def tell(self, note: Notification, link: Link) -> None:
        if not note.method.endswith("/list_changed") and not note.method.endswith("/updated"):
            super().tell(note, link)
