"""A supervised server: when it is tried again, and when it is left alone."""

import asyncio
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from fairlead import MCPClientConfig
from fairlead.client.server_entry import MCPServerEntry, MCPStdioServerConfig
from fairlead.errors import ConnectFailed, LocalResourceError
from fairlead.manager import supervisor as module
from fairlead.manager.supervisor import Rules, Supervisor
from fairlead.transport.backoff import Backoff
from fairlead.upstream.start_limiter import StartLimiter
from tests.support.virtual_time import VirtualTime


def supervisor_of(states: list[str], tried: list[float], clock: VirtualTime) -> Supervisor:
    """A server that was connected once, and now cannot be resolved."""

    async def resolve() -> MCPServerEntry:
        tried.append(clock.now)
        raise ConnectFailed("no such program")

    one = Supervisor(
        "red",
        resolve,
        slots=StartLimiter(1),
        rules=Rules(),
        config=MCPClientConfig(),
        callbacks={},
        changed=lambda supervisor: states.append(supervisor.state),
        told=lambda *of: None,
    )
    one.generation = 1
    return one


async def test_a_server_elsewhere_is_tried_ever_later_up_to_half_a_minute(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Backoff", partial(Backoff, jitter=0.0))
    tried: list[float] = []
    one = supervisor_of([], tried, virtual_time)
    one.start()
    await asyncio.sleep(160)
    assert one.state == "reconnecting"
    await one.stop()
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    assert gaps == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30])


@pytest.mark.parametrize(
    ("seconds", "suspended"),
    [
        ([0, 6, 6, 6, 6, 6], True),  # the sixth within 30 seconds
        ([0, 6, 6, 6, 6, 6.1], False),
        ([0, 1, 1, 1, 1], False),
    ],
)
async def test_a_program_that_is_lost_six_times_in_half_a_minute_is_left_alone(
    virtual_time: VirtualTime, seconds: list[float], suspended: bool
) -> None:
    one = supervisor_of([], [], virtual_time)
    crashes = False
    for gap in seconds:
        virtual_time.now += gap
        assert not crashes
        crashes = one._crashes()
    assert crashes is suspended


async def test_a_crash_loop_suspends_a_program_until_somebody_asks_for_it(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[str] = []
    tried: list[float] = []
    one = supervisor_of(states, tried, virtual_time)
    one._is_process = True

    async def crash(*args: Any, **options: Any) -> Any:
        tried.append(virtual_time.now)
        raise ConnectFailed("it crashed")

    async def resolve() -> MCPServerEntry:
        return MCPStdioServerConfig(command="red")

    one._resolve = resolve
    monkeypatch.setattr(module, "open_client", crash)
    one.start()
    await asyncio.sleep(600)
    assert one.state == "suspended"
    assert len(tried) == 6
    assert str(one.error) == (
        "given up, it was lost more than 5 times within 30 s; the last time: it crashed"
    )
    await one.stop()
    assert one.state == "stopped"


async def test_a_shortage_of_this_machine_counts_against_no_server(
    virtual_time: VirtualTime,
) -> None:
    tried: list[float] = []
    one = supervisor_of([], tried, virtual_time)
    one.generation = 0  # not even one that was never connected

    async def resolve() -> MCPServerEntry:
        tried.append(virtual_time.now)
        raise LocalResourceError("no pipe", "file descriptors")

    one._resolve = resolve
    one.start()
    await asyncio.wait_for(one.settled.wait(), 5)
    with pytest.raises(ConnectFailed, match="no pipe"):
        await one.ready()
    await asyncio.sleep(300)
    assert len(tried) > 8
    assert one.state == "reconnecting"
    assert not one._losses
    assert one._slots.shortage.seconds >= 300
    await one.stop()
