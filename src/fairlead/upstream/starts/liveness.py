"""Detection of servers that hang. A server that left a call unanswered may also be busy."""

import asyncio
import logging
from collections.abc import Callable

from ...errors import FairleadError, RequestTimeout
from ...peer import Peer

__all__ = ["LivenessProbe"]

GRACE = 1.0  # seconds before the ping, because most cancelled calls are not caused by a hang

log = logging.getLogger("fairlead.manager")


class LivenessProbe:
    """Pings connections on which a caller stopped waiting for a response.

    A server that responds to the ping, or to any earlier request, is only busy. A server that sends
    no response has to be restarted, because every further call to it would time out.
    """

    def __init__(self, limit: float) -> None:
        """`limit`: seconds without a response after which a server hangs; 0 means never."""
        self._limit = limit
        self._looking: dict[Peer, asyncio.Task[None]] = {}

    def check_hang(self, peer: Peer, hangs: Callable[[str], None]) -> None:
        """Ping the server, unless a ping is pending; call `hangs` with the reason if it fails."""
        if not self._limit or not peer.connected or peer in self._looking:
            return
        task = asyncio.get_running_loop().create_task(self._look(peer, hangs))
        self._looking[peer] = task
        task.add_done_callback(lambda _: self._looking.pop(peer, None))

    def close(self) -> None:
        for task in self._looking.values():
            task.cancel()

    async def _look(self, peer: Peer, hangs: Callable[[str], None]) -> None:
        late = peer.unmatched_count  # Late responses to cancelled requests are signs of life, too.
        await asyncio.sleep(min(GRACE, self._limit))
        if await self._answers(peer) or peer.unmatched_count > late or not peer.connected:
            return
        # The text follows the name of the server in messages, like a `public_reason`.
        hangs(f"does not respond: no response to a call, nor to a ping within {self._limit:g} s")

    async def _answers(self, peer: Peer) -> bool:
        agreement = peer.conversation.agreement
        stateless = agreement is not None and agreement.revision.stateless
        method = "server/discover" if stateless else "ping"
        try:
            await peer.request(method, timeout=self._limit, quiet=True)
        except RequestTimeout:
            return False
        except FairleadError as exc:
            # An error response is a response, and a closed connection is reported elsewhere.
            log.debug("the ping failed: %s", exc)
        return True
