"""Waiting until connecting servers are connected or have failed."""

import asyncio
from typing import Any

import pytest

from fairlead.manager.startup_gate import wait_briefly, wait_until_settled
from tests.support.virtual_time import VirtualTime


class Starting:
    """A server whose state is set by the test."""

    def __init__(self) -> None:
        self.settled = asyncio.Event()


@pytest.mark.parametrize(("spent", "waits"), [(0.0, 0.25), (0.1, 0.15), (0.25, 0.0), (9.0, 0.0)])
async def test_the_brief_wait_for_start_up_ends_after_a_quarter_of_a_second(
    virtual_time: VirtualTime, spent: float, waits: float
) -> None:
    server: Any = Starting()
    begun = virtual_time.now
    virtual_time.now += spent
    await wait_briefly([server], begun)
    assert virtual_time.now - begun - spent == pytest.approx(waits)


async def test_the_wait_for_start_up_ends_when_all_servers_are_connected_or_failed(
    virtual_time: VirtualTime,
) -> None:
    servers: list[Any] = [Starting(), Starting()]
    waiting = asyncio.ensure_future(wait_until_settled(servers))
    for server in servers:
        assert not waiting.done()
        server.settled.set()
        await asyncio.sleep(0.01)
    assert waiting.done()
    await wait_until_settled([])
