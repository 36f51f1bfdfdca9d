"""Tests of the fault action with single exchanges."""

import asyncio
from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.interceptor.direct_edge import NullReplyPath
from fairlead.policy.actions import Fault
from fairlead.protocol.caller import ANONYMOUS
from tests.support.single_exchange import Behind, exchange
from tests.support.virtual_time import VirtualTime


@pytest.mark.parametrize("settings", [{"chance": -0.1}, {"chance": 1.1}, {"seconds": -0.1}])
def test_a_chance_outside_0_to_1_or_negative_seconds_are_rejected(
    settings: dict[str, Any],
) -> None:
    with pytest.raises(ValueError, match=r"`chance`|`seconds`"):
        Fault("drop", **settings)


async def test_a_fault_with_chance_zero_never_occurs() -> None:
    assert await Fault("error", 0.0)(exchange(), Behind()) == b"{}"
    with pytest.raises(RpcError, match="Injected fault"):
        await Fault("error", 1.0)(exchange(), Behind())


async def test_faults_duplicate_corrupt_drop_or_delay_messages() -> None:
    behind = Behind()
    assert await Fault("duplicate")(exchange(), behind) == b"{}"
    assert len(behind.seen) == 2
    corrupt = await Fault("corrupt")(exchange(), Behind())
    assert bytes(corrupt or b"") == b'{"corrupt":true}'
    behind = Behind(None)
    await Fault("corrupt")(exchange("n", {"a": 1}, request=False), behind)
    assert bytes(behind.seen[0].message.params) == b'{"corrupt":true}'  # type: ignore[arg-type]
    assert await Fault("drop")(exchange(request=False), Behind()) is None
    assert await Fault("slow", seconds=0)(exchange(), Behind()) == b"{}"


@pytest.mark.parametrize("kind", ["duplicate", "corrupt", "error", "slow", "cut"])
async def test_an_injected_fault_is_noted_in_the_exchange(kind: Any) -> None:
    asked = exchange()
    if kind in ("error", "cut"):
        with pytest.raises(RpcError, match="Injected fault") as refused:
            await Fault(kind)(asked, Behind())
        assert refused.value.code == -32603
    else:
        await Fault(kind, seconds=0)(asked, Behind())
    assert (asked.did or [])[0] == f"fault: {kind}"


async def test_a_slow_fault_delays_the_response(virtual_time: VirtualTime) -> None:
    began = virtual_time.now
    assert await Fault("slow")(exchange(), Behind()) == b"{}"
    assert virtual_time.now == began + 5.0
    assert await Fault("slow", seconds=2)(exchange(), Behind()) == b"{}"
    assert virtual_time.now == began + 7.0


async def test_a_dropped_message_is_neither_answered_nor_forwarded(
    virtual_time: VirtualTime,
) -> None:
    behind = Behind()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1000):
            await Fault("drop")(exchange(), behind)
    assert await Fault("drop")(exchange(request=False), behind) is None
    assert behind.seen == []


async def test_faults_with_the_same_seed_are_reproducible() -> None:
    async def pattern() -> list[int]:
        fault, behind, seen = Fault("duplicate", 0.5, seed=3), Behind(), []
        for _ in range(30):
            await fault(exchange(), behind)
            seen.append(len(behind.seen))
            behind.seen.clear()
        return seen

    first = await pattern()
    assert first == await pattern()
    assert set(first) == {1, 2}


async def test_a_cut_fault_closes_the_connection_of_the_sender() -> None:
    closed = asyncio.Event()

    class Edge(NullReplyPath):
        async def close(self) -> None:
            closed.set()

    asked = exchange()
    asked.edge = Edge(ANONYMOUS)
    with pytest.raises(RpcError):
        await Fault("cut")(asked, Behind())
    async with asyncio.timeout(5):
        await closed.wait()
