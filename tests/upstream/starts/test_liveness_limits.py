"""Time limits for a server to respond after a caller stopped waiting."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Raw

from fairlead.peer import Peer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.conversation.conversation import Agreement, Conversation, ConversationRole
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision
from fairlead.transport.memory import memory_pair
from fairlead.upstream.starts.liveness import LivenessProbe
from fairlead.wire import Request, Success
from tests.support.virtual_time import VirtualTime


class QuietServer:
    """A server that responds to pings after some seconds, or never."""

    def __init__(self, clock: VirtualTime, seconds: float | None, revision: Revision) -> None:
        self.asked: list[tuple[str, float]] = []
        self.hangs: list[tuple[str, float]] = []
        self._begun = clock.now
        self._clock = clock
        self._seconds = seconds
        self._revision = revision

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Peer]:
        left, self._channel = memory_pair()
        peer = Peer(left, Conversation(ConversationRole.CLIENT, principal=ANONYMOUS))
        peer.conversation.set_agreement(Agreement(revision=self._revision))
        peer.start()
        running = asyncio.ensure_future(self._channel.run(self._deliver))
        try:
            yield peer
        finally:
            await peer.close()
            await self._channel.close()
            await running

    def told(self, why: str) -> None:
        self.hangs.append((why, self._clock.now - self._begun))

    def _deliver(self, message: Any) -> None:
        if isinstance(message, Request):
            self.asked.append((message.method, self._clock.now - self._begun))
            if self._seconds is not None:
                reply = Success(message.id, Raw(b"{}"))
                loop = asyncio.get_running_loop()
                loop.call_later(self._seconds, self._channel.send, reply)


@pytest.mark.parametrize(
    ("revision", "method"), [(NEWEST_HANDSHAKE, "ping"), (NEWEST, "server/discover")]
)
async def test_a_server_is_pinged_after_one_second_and_hangs_after_the_limit(
    virtual_time: VirtualTime, revision: Revision, method: str
) -> None:
    server = QuietServer(virtual_time, None, revision)
    probe = LivenessProbe(lambda: 60.0)
    async with server.opened() as peer:
        for _ in range(3):  # only one ping is sent
            probe.check_hang(peer, server.told)
        await asyncio.sleep(100)
    assert server.asked == [(method, pytest.approx(1.0))]
    why = "does not respond: no response to a call, nor to a ping within 60 s"
    assert server.hangs == [(why, pytest.approx(61.0))]


async def test_a_server_that_responds_in_time_may_be_checked_again(
    virtual_time: VirtualTime,
) -> None:
    server = QuietServer(virtual_time, 59.0, NEWEST_HANDSHAKE)
    probe = LivenessProbe(lambda: 60.0)
    async with server.opened() as peer:
        for _ in range(2):
            probe.check_hang(peer, server.told)
            await asyncio.sleep(100)
    assert [round(when) for _, when in server.asked] == [1, 101]
    assert server.hangs == []


async def test_a_closed_liveness_probe_reports_no_hang(virtual_time: VirtualTime) -> None:
    server = QuietServer(virtual_time, None, NEWEST_HANDSHAKE)
    probe = LivenessProbe(lambda: 60.0)
    async with server.opened() as peer:
        probe.check_hang(peer, server.told)
        await asyncio.sleep(2)
        probe.close()
        await asyncio.sleep(100)
        assert server.hangs == []
        LivenessProbe(lambda: 0).check_hang(peer, server.told)  # 0: never
        await asyncio.sleep(100)
    assert (len(server.asked), server.hangs) == (1, [])
