"""Common base of the server's channels over HTTP.

Messages arrive in separate HTTP requests and leave in streams.
"""

import asyncio
from collections.abc import Sequence

from msgspec import Raw

from .....errors import ChannelClosed
from .....limits import MESSAGES_PER_TURN
from .....protocol.caller import Principal
from .....protocol.envelope import TransportContext
from .....protocol.revisions import Revision
from .....wire import Notification, Request, RequestId, to_json
from ....channel import BufferedDelivery, Deliver, Incoming, SharedStream
from ....drain_waiter import DrainWaiter

__all__ = ["StreamedChannel"]


class StreamedChannel(BufferedDelivery, SharedStream):
    """Base of channels that receive single messages and send on streams."""

    def __init__(self, context: TransportContext) -> None:
        super().__init__()
        self.context = context
        self._drained = DrainWaiter()
        self.over = False
        self._ended: asyncio.Future[None] | None = None  # resolved at the end; created by `run`

    @property
    def congested(self) -> bool:
        raise NotImplementedError  # subclasses decide which streams count

    async def run(self, deliver: Deliver) -> None:
        self.begin(deliver)
        if not self.over:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended

    def simulate_handshake(
        self, request_id: RequestId, revision: Revision, client: dict[str, str]
    ) -> None:
        """Deliver a handshake on behalf of a client that sends none."""
        params = {"protocolVersion": revision.value, "capabilities": {}, "clientInfo": client}
        self.hand_over(Request(request_id, "initialize", Raw(to_json(params))))
        self.hand_over(Notification("notifications/initialized"))

    def receive(self, message: Incoming, principal: Principal) -> None:
        """Deliver a message from the principal that owns the channel."""
        self.hand_over(message)

    async def take_all(self, items: Sequence[Incoming], principal: Principal) -> None:
        """Deliver the messages of a batch, and let other tasks run after every few messages."""
        for start in range(0, len(items), MESSAGES_PER_TURN.value):
            if start:
                MESSAGES_PER_TURN.hit()
                await asyncio.sleep(0)
            for item in items[start : start + MESSAGES_PER_TURN.value]:
                self.receive(item, principal)

    async def drain(self) -> None:
        while self.congested and not self.over:
            await self._drained.wait()
        if self.over:
            raise ChannelClosed()

    def _end(self) -> None:
        if not self.over:
            self.over = True
            self._deliver = _ignore  # breaks the reference cycle with the peer
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(None)
            self._drained.wake()


def _ignore(item: Incoming) -> None:
    """Do nothing: the channel has ended."""
