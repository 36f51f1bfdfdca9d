"""Whether a server that left a call unanswered is still there: it may be busy, or hang for good."""

import asyncio
import logging
from collections.abc import Callable

from ...errors import FairleadError, RequestTimeout
from ...peer import Peer

__all__ = ["LivenessProbe"]

GRACE = 1.0  # seconds until it is asked: most who give a call up have only changed their mind

log = logging.getLogger("fairlead.manager")


class LivenessProbe:
    """Looks after connections on which somebody gave up waiting.

    Busy is whoever answers a ping, or anything else, however late. A server that says nothing at
    all has to be started anew: it would let one call after the other time out.
    """

    def __init__(self, limit: float) -> None:
        """`limit`: seconds of silence after which a server hangs; 0: never."""
        self._limit = limit
        self._looking: dict[Peer, asyncio.Task[None]] = {}

    def check_hang(self, peer: Peer, hangs: Callable[[str], None]) -> None:
        """Look whether it answers, if nobody does so already; `hangs` is told why it does not."""
        if not self._limit or not peer.connected or peer in self._looking:
            return
        task = asyncio.get_running_loop().create_task(self._look(peer, hangs))
        self._looking[peer] = task
        task.add_done_callback(lambda _: self._looking.pop(peer, None))

    def close(self) -> None:
        for task in self._looking.values():
            task.cancel()

    async def _look(self, peer: Peer, hangs: Callable[[str], None]) -> None:
        late = peer.unmatched_count  # answers for which nobody waits any more are answers, too
        await asyncio.sleep(min(GRACE, self._limit))
        if await self._answers(peer) or peer.unmatched_count > late or not peer.connected:
            return
        hangs(f"it hangs: a call got no answer, nor did a ping within {self._limit:g} s")

    async def _answers(self, peer: Peer) -> bool:
        agreement = peer.conversation.agreement
        stateless = agreement is not None and agreement.revision.stateless
        method = "server/discover" if stateless else "ping"
        try:
            await peer.request(method, timeout=self._limit, quiet=True)
        except RequestTimeout:
            return False
        except FairleadError as exc:
            log.debug("a ping was not answered well: %s", exc)  # but it was
        return True
