"""Tasks beside the calls on a connection: when they ask, and when they give up."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.errors import ConnectFailed, LocalResourceError, RequestTimeout, RpcError
from fairlead.manager.connection_tasks import Attending
from fairlead.manager.supervisor import Rules, Wants
from fairlead.transport.channel import SharedStream
from tests.support.virtual_time import VirtualTime


class FakeSupervisor:
    """What the tasks tell of a server."""

    name, timeout, busy = "red", 30.0, False

    def __init__(self) -> None:
        self.answered = 0.0
        self.tools_error: Exception | None = None
        self.lists: list[list[Any]] = []
        self.lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def listed(self, tools: list[Any]) -> None:
        self.tools_error = None
        self.lists.append(tools)

    def not_listed(self, error: Exception) -> None:
        self.tools_error = error

    def lose(self, client: Any, error: Exception) -> None:
        self.lost.set_result(error)


class FakeClient:
    """A server that answers as it is told, at times that are noted."""

    def __init__(self, clock: VirtualTime) -> None:
        self.server: dict[str, Any] = {"capabilities": {"tools": {}}}
        self.transport = SimpleNamespace(peer=SimpleNamespace(channel=SharedStream()))
        self.healthy = True
        self.silence = ConnectFailed("silence")
        self.failure: Exception | None = None
        self.hangs = False
        self.pings: list[float] = []
        self.listings: list[float] = []
        self._clock = clock

    async def ping(self) -> None:
        self.pings.append(self._clock.now)
        if not self.healthy:
            raise self.silence

    async def list_tools(self, *, cache: bool) -> list[Any]:
        self.listings.append(self._clock.now)
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return [{"name": "who"}]


async def attended(
    client: FakeClient, supervisor: FakeSupervisor, seconds: float, **rules: float
) -> None:
    """Look after a connection for some time."""
    tasks: Any = Attending(supervisor, client, Rules(**rules))  # type: ignore[arg-type]
    await tasks.begin(Wants(), 30.0)
    await asyncio.sleep(seconds)
    await tasks.end()


@pytest.mark.parametrize("seed", range(5))
async def test_pings_keep_to_the_interval_within_a_tenth(
    virtual_time: VirtualTime, seed: int
) -> None:
    random.seed(seed)
    client, begun = FakeClient(virtual_time), virtual_time.now
    await attended(client, FakeSupervisor(), 500, health_interval=60, tools_retry=0)
    gaps = [b - a for a, b in zip([begun, *client.pings], client.pings, strict=False)]
    assert len(gaps) >= 7
    assert all(54 <= gap <= 66 for gap in gaps)


async def test_servers_that_began_together_are_not_asked_together(
    virtual_time: VirtualTime,
) -> None:
    clients = [FakeClient(virtual_time) for _ in range(20)]
    each = (attended(one, FakeSupervisor(), 70, health_interval=60) for one in clients)
    await asyncio.gather(*each)
    assert len({one.pings[0] for one in clients}) == 20


async def test_a_server_that_misses_two_pings_is_lost(virtual_time: VirtualTime) -> None:
    client, supervisor = FakeClient(virtual_time), FakeSupervisor()
    client.healthy = False
    await attended(client, supervisor, 500, health_interval=60)
    assert len(client.pings) == 2
    assert str(supervisor.lost.result()) == str(ConnectFailed("it does not answer: silence"))


async def test_one_missed_ping_is_forgiven_when_the_next_is_answered(
    virtual_time: VirtualTime,
) -> None:
    client, supervisor = FakeClient(virtual_time), FakeSupervisor()
    answers = iter([False, True] * 10)

    async def every_second() -> None:
        client.pings.append(virtual_time.now)
        if not next(answers):
            raise ConnectFailed("silence")

    client.ping = every_second  # type: ignore[method-assign]
    await attended(client, supervisor, 500, health_interval=60)
    assert len(client.pings) >= 7
    assert not supervisor.lost.done()


async def test_pings_that_this_machine_cannot_send_are_not_missed(
    virtual_time: VirtualTime,
) -> None:
    client, supervisor = FakeClient(virtual_time), FakeSupervisor()
    client.healthy, client.silence = False, LocalResourceError("no ping", "file descriptors")
    await attended(client, supervisor, 500, health_interval=60)
    assert len(client.pings) >= 7
    assert not supervisor.lost.done()


async def test_a_failed_list_is_tried_again_ever_later_up_to_a_minute(
    virtual_time: VirtualTime,
) -> None:
    client, supervisor = FakeClient(virtual_time), FakeSupervisor()
    client.failure = RpcError(-32603, "not now")
    await attended(client, supervisor, 400, health_interval=0, tools_retry=5)
    gaps = [b - a for a, b in zip(client.listings, client.listings[1:], strict=False)]
    assert [round(gap) for gap in gaps] == [5, 10, 20, 40, 60, 60, 60, 60, 60]


async def test_a_list_that_never_comes_is_given_up_after_a_minute(
    virtual_time: VirtualTime,
) -> None:
    client, supervisor = FakeClient(virtual_time), FakeSupervisor()
    tasks: Any = Attending(supervisor, client, Rules(health_interval=0, tools_retry=0))  # type: ignore[arg-type]
    await tasks.begin(Wants(), 30.0)
    client.hangs = True
    tasks.heard("notifications/tools/list_changed")
    await asyncio.sleep(60)
    assert supervisor.tools_error is None
    await asyncio.sleep(0.2)  # and the pause between two lists
    assert isinstance(supervisor.tools_error, RequestTimeout)
    assert supervisor.tools_error.args == RequestTimeout(60.0, "tools/list").args
    await tasks.end()
