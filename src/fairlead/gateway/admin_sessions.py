"""The part of the admin API that is about clients: who is connected, and an end of it.

GET    /admin/sessions        those on a connection that lasts; requests that stand alone are none
DELETE /admin/sessions/ID     hang up; a client may come back with a new one
"""

import itertools
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..errors import ConfigError
from ..peer import Peer

if TYPE_CHECKING:
    from .gateway import Gateway

__all__ = ["ClientSessions"]


class ClientSessions:
    """The clients of a gateway under numbers: the ids of their sessions are nobody's business."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._numbers: WeakKeyDictionary[Peer, int] = WeakKeyDictionary()
        self._next = itertools.count(1)

    def list(self) -> list[dict[str, Any]]:
        """All of them, as plain data."""
        facts = self._gateway.sessions()
        peers = [visitor.peer for visitor in self._gateway.visitors()]
        return [{"id": self._number(p), **one} for p, one in zip(peers, facts, strict=True)]

    async def end(self, number: int) -> None:
        """Hang up on one; what it has under way is cancelled.

        Raises:
            ConfigError: there is none of this number.
        """
        for visitor in self._gateway.visitors():
            if self._number(visitor.peer) == number:
                await visitor.peer.close("the session was ended by an administrator")
                return
        raise ConfigError(f"there is no session {number}")

    def _number(self, peer: Peer) -> int:
        number = self._numbers.get(peer)
        if number is None:
            number = self._numbers[peer] = next(self._next)
        return number
