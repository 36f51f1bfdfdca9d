"""Detection of servers that hang, as opposed to busy servers."""

import asyncio
import logging
from collections.abc import Callable

from ...errors import FairleadError, RequestTimeout
from ...peer import Peer

__all__ = ["LivenessProbe"]

GRACE = 1.0  # seconds before the ping; most cancelled calls are not caused by a hang

log = logging.getLogger("fairlead.manager")


class LivenessProbe:
    """Pings connections on which a caller stopped waiting for a response.

    A server that responds to the ping, or to any earlier request, is only busy. A server that sends
    no response has to be restarted, because every further call to it would time out.
    """

    def __init__(self, limit: Callable[[], float]) -> None:
        """`limit` returns the seconds without a response after which a server counts as hanging; 0
        means never.
        """
        self._limit = limit
        self._looking: dict[Peer, asyncio.Task[None]] = {}

    def check_hang(self, peer: Peer, hangs: Callable[[str], None]) -> None:
        """Ping the server, unless a ping is pending; call `hangs` with the reason if it fails."""
        limit = self._limit()
        if not limit or not peer.connected or peer in self._looking:
            return
        task = asyncio.get_running_loop().create_task(self._look(peer, limit, hangs))
        self._looking[peer] = task
        task.add_done_callback(lambda _: self._looking.pop(peer, None))

    def close(self) -> None:
        for task in self._looking.values():
            task.cancel()

    async def _look(self, peer: Peer, limit: float, hangs: Callable[[str], None]) -> None:
        late = peer.unmatched_count  # Late responses also show that the server works.
        await asyncio.sleep(min(GRACE, limit))
        if await _answers(peer, limit) or peer.unmatched_count > late or not peer.connected:
            return
        # Messages put the name of the server before this text.
        hangs(f"does not respond: no response to a call, nor to a ping within {limit:g} s")


async def _answers(peer: Peer, limit: float) -> bool:
    agreement = peer.conversation.agreement
    stateless = agreement is not None and agreement.revision.stateless
    method = "server/discover" if stateless else "ping"
    try:
        await peer.request(method, timeout=limit, quiet=True)
    except RequestTimeout:
        return False
    except FairleadError as exc:
        # An error response shows that the server works; other code reports a closed connection.
        log.debug("the ping failed: %s", exc)
    return True
