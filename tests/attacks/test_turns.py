"""Batches and bursts of frames, which must not block the event loop for other clients."""

import asyncio
import json
from typing import Any

import pytest

from fairlead.limits import MESSAGES_PER_TURN
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.envelope import TransportContext
from fairlead.transport.http.server.sessions.streamed_channel import StreamedChannel
from fairlead.transport.websocket.websocket_channel import WebSocketChannel
from fairlead.wire import Notification

MANY = 10 * MESSAGES_PER_TURN.value


class TurnLock:
    """A counter of the turns of the event loop, in each of which other callbacks can run."""

    def __init__(self) -> None:
        self.count = 0
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self.count += 1
        asyncio.get_running_loop().call_soon(self._turn)


@pytest.mark.attack(
    "a batch of a thousand messages", "`messages_per_turn`", "other clients are served meanwhile"
)
async def test_delivering_a_batch_yields_to_other_callbacks_of_the_event_loop() -> None:
    channel = StreamedChannel(TransportContext(transport_type="http"))
    taken: list[tuple[int, Any]] = []
    running = asyncio.create_task(channel.run(lambda item: taken.append((turns.count, item))))
    await asyncio.sleep(0)
    turns = TurnLock()
    notes = [Notification(f"notifications/{n}") for n in range(MANY)]
    async with asyncio.timeout(5):
        await channel.take_all(notes, ANONYMOUS)
    running.cancel()
    assert [item for _, item in taken] == notes
    assert len({turn for turn, _ in taken}) == MANY // MESSAGES_PER_TURN.value


class Burst:
    """A socket with many received frames that can be read without waiting."""

    def __init__(self) -> None:
        self.left = MANY

    async def receive(self) -> str:
        if not self.left:
            await asyncio.Event().wait()
        self.left -= 1
        return json.dumps({"jsonrpc": "2.0", "method": "notifications/x"})

    async def send(self, frame: bytes) -> None: ...

    async def close(self, code: int, reason: str) -> None: ...

    def abort(self) -> None: ...


class Reading(WebSocketChannel):
    def arrived(self, data: str | bytes) -> None:
        self.take(data.encode() if isinstance(data, str) else data)


@pytest.mark.attack(
    "hundreds of WebSocket frames in one packet",
    "`messages_per_turn`",
    "other clients are served meanwhile",
)
async def test_handling_a_burst_of_frames_yields_to_other_callbacks_of_the_event_loop() -> None:
    channel = Reading(TransportContext(transport_type="websocket"), Burst())
    seen: list[int] = []
    done = asyncio.Event()

    def deliver(item: object) -> None:
        seen.append(turns.count)
        if len(seen) == MANY:
            done.set()

    turns = TurnLock()
    running = asyncio.create_task(channel.run(deliver))
    async with asyncio.timeout(5):
        await done.wait()
    running.cancel()
    assert max(seen.count(turn) for turn in set(seen)) <= MESSAGES_PER_TURN.value
