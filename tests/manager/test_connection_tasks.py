"""Tasks beside the calls on a connection: when they ask, and when they give up."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
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


# What was asked for before, and changes that are followed


class Following(FakeClient):
    """A server that tells of changes, and may refuse what it is asked for."""

    def __init__(self, clock: VirtualTime, *kinds: str) -> None:
        super().__init__(clock)
        self.server = {"capabilities": {kind: {"listChanged": True} for kind in kinds}}
        self.asked: list[tuple[str, str]] = []
        self.refusals: dict[str, Exception] = {}
        self.followed: list[tuple[str, ...]] = []
        self.news: asyncio.Queue[str] = asyncio.Queue()
        self.quiet = False
        self.restored = 0

    async def set_log_level(self, level: str) -> None:
        await self._asked("level", level)

    async def subscribe(self, uri: str) -> None:
        await self._asked("subscribe", uri)

    async def _asked(self, what: str, about: str) -> None:
        self.asked.append((what, about))
        if about in self.refusals:
            raise self.refusals[about]

    @contextlib.asynccontextmanager
    async def changes(self, *kinds: str) -> AsyncIterator[Any]:
        self.followed.append(kinds)
        if self.quiet:
            await asyncio.Event().wait()
        yield self._changes()

    async def _changes(self) -> AsyncIterator[Any]:
        while True:
            kind = await self.news.get()
            if kind == "end":
                raise RpcError(-32601, "no more")
            yield SimpleNamespace(kind=kind)

    async def restore(self) -> None:
        self.restored += 1


WANTS = Wants(uris={"a:1": None, "a:2": None}, log_level="debug")


def attending(client: Any, supervisor: Any, **rules: float) -> Attending:
    return Attending(supervisor, client, Rules(health_interval=0, **rules))


async def test_all_that_was_asked_for_is_asked_again_each_by_itself(
    virtual_time: VirtualTime,
) -> None:
    client, supervisor = Following(virtual_time), FakeSupervisor()
    client.refusals["a:1"] = RpcError(5, "no")
    tasks = attending(client, supervisor)
    await tasks.begin(WANTS, 30.0)
    assert client.asked == [("level", "debug"), ("subscribe", "a:1"), ("subscribe", "a:2")]
    assert supervisor.lists == [[{"name": "who"}]]
    await tasks.end()
    assert tasks._tasks == set()


@pytest.mark.parametrize("error", [ConnectFailed("gone"), ZeroDivisionError("bug")])
async def test_a_server_that_goes_meanwhile_is_gone(
    virtual_time: VirtualTime, error: Exception
) -> None:
    client = Following(virtual_time)
    client.refusals["a:2"] = error
    tasks = attending(client, FakeSupervisor())
    with pytest.raises(type(error)):
        await tasks.begin(WANTS, 30.0)
    await tasks.end()


async def test_a_list_that_takes_too_long_is_known_as_such(virtual_time: VirtualTime) -> None:
    client, supervisor = Following(virtual_time), FakeSupervisor()
    client.hangs = True
    tasks = attending(client, supervisor)
    began = virtual_time.now
    await tasks.begin(WANTS, 7.0)
    assert virtual_time.now == began + 7.0
    assert isinstance(supervisor.tools_error, RequestTimeout)
    await tasks.end()


@pytest.mark.parametrize(
    ("kinds", "followed"),
    [(("tools",), [("tools",)]), (("prompts", "tools"), [("tools", "prompts")]), ((), [])],
)
async def test_changes_that_a_server_tells_of_are_followed(
    virtual_time: VirtualTime, kinds: tuple[str, ...], followed: list[Any]
) -> None:
    client, supervisor = Following(virtual_time, *kinds), FakeSupervisor()
    tasks = attending(client, supervisor)
    await tasks.begin(Wants(), 30.0)
    assert client.followed == followed
    await asyncio.sleep(10)
    if kinds:
        client.news.put_nowait("prompts")
        await asyncio.sleep(10)
        assert len(client.listings) == 1  # nothing of tools
        client.news.put_nowait("tools")
        tasks.heard("notifications/tools/list_changed")  # the same, told otherwise
        await asyncio.sleep(10)
        assert len(client.listings) == 2
    else:
        tasks.heard("notifications/prompts/list_changed")
        await asyncio.sleep(10)
        assert len(client.listings) == 1
        tasks.heard("notifications/tools/list_changed")
        await asyncio.sleep(10)
        assert len(client.listings) == 2
    await tasks.end()


async def test_a_stream_of_changes_is_waited_for_a_second(virtual_time: VirtualTime) -> None:
    client = Following(virtual_time, "tools")
    client.quiet = True
    tasks = attending(client, FakeSupervisor())
    began = virtual_time.now
    await tasks.begin(Wants(), 30.0)
    assert client.listings == [began + 1.0]
    await tasks.end()
    refused = Following(virtual_time, "tools")
    refused.news.put_nowait("end")
    tasks, began = attending(refused, FakeSupervisor()), virtual_time.now
    await tasks.begin(Wants(), 30.0)
    await asyncio.sleep(5)
    assert refused.listings == [began]  # it is used all the same
    await tasks.end()


async def test_a_new_session_is_asked_for_everything_again(virtual_time: VirtualTime) -> None:
    client, supervisor = Following(virtual_time), FakeSupervisor()
    tasks = attending(client, supervisor)
    await tasks.begin(Wants(), 30.0)
    await asyncio.sleep(10)
    channel = client.transport.peer.channel
    assert channel.on_renewed is not None
    channel.on_renewed()
    await asyncio.sleep(10)
    assert (client.restored, len(client.listings)) == (1, 2)
    await tasks.end()


async def test_a_task_that_fails_ends_the_connection(virtual_time: VirtualTime) -> None:
    client, supervisor = Following(virtual_time), FakeSupervisor()
    tasks = attending(client, supervisor)
    await tasks.begin(Wants(), 30.0)
    client.failure = ZeroDivisionError()
    tasks.heard("notifications/tools/list_changed")
    assert isinstance(await supervisor.lost, ZeroDivisionError)
    await tasks.end()


async def test_a_busy_server_is_not_asked_whether_it_is_there(virtual_time: VirtualTime) -> None:
    client, supervisor = FakeClient(virtual_time), FakeSupervisor()
    supervisor.busy = True  # type: ignore[misc]
    await attended(client, supervisor, 500, health_interval=60)
    assert client.pings == []
