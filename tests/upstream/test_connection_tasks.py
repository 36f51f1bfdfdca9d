"""Background tasks of a connection: list requests, pings, and losses that they detect."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    LocalResourceError,
    RequestTimeout,
    RetriesExhausted,
    RpcError,
)
from fairlead.limits import LIST_SECONDS
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.upstream.connection_tasks import ConnectionTasks, DesiredState
from fairlead.upstream.server_lists import ServerLists
from tests.support.scripted_upstream import ScriptedPeer, raw_items
from tests.support.virtual_time import VirtualTime

TOOLS, PROMPTS, RESOURCES, TEMPLATES = ListKind


class FakeOwner:
    """A fake owner of a connection that records its loss."""

    name = "red"

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        self.answered = 0.0
        self.busy = False
        self.warnings: list[str] = []
        self.lost: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def warn_once(self, reason: str) -> None:
        self.warnings.append(reason)

    def lose(self, client: Any, why: BaseException | None) -> None:
        self.lost.set_result(why)


class FakeClient:
    """A server that responds as the test specifies, and records the times of requests."""

    def __init__(self, clock: VirtualTime, *declared: str, changes: Iterable[str] = ()) -> None:
        """Set the declared capabilities (default: `tools`) and the lists that announce changes."""
        capabilities: dict[str, Any] = {name: {} for name in declared or ("tools",)}
        capabilities |= {name: {"listChanged": True} for name in changes}
        self.server: dict[str, Any] = {"capabilities": capabilities}
        self.transport = SimpleNamespace(peer=ScriptedPeer())
        self.healthy = True
        self.silence: Exception = ConnectFailed("silence")
        self.failures: dict[str, Exception] = {}  # errors to raise, by method
        self.hanging: set[str] = set()  # methods without a response
        self.pings: list[float] = []
        self.listings: list[tuple[str, float]] = []
        self.learned: list[list[str]] = []
        self.requests: list[tuple[str, str]] = []
        self.refusals: dict[str, Exception] = {}
        self.followed: list[tuple[str, ...]] = []
        self.changes_made: asyncio.Queue[str] = asyncio.Queue()
        self.quiet = False  # True: the stream of changes is never acknowledged
        self.restored = 0
        self._clock = clock

    async def ping(self) -> None:
        self.pings.append(self._clock.now)
        if not self.healthy:
            raise self.silence

    async def list_raw(self, method: str, member: str) -> list[Raw]:
        self.listings.append((method, self._clock.now))
        if method in self.hanging:
            await asyncio.Event().wait()
        if method in self.failures:
            raise self.failures[method]
        return raw_items([{"name": f"{member} {len(self.listings)}"}])

    def learn_tools(self, tools: Iterable[dict[str, Any]]) -> None:
        self.learned.append([tool["name"] for tool in tools])

    def times(self, method: str = "tools/list") -> list[float]:
        """Return the times of requests for a list method."""
        return [when for one, when in self.listings if one == method]

    def methods(self) -> list[str]:
        """Return the list methods that were requested since the previous call."""
        methods = [method for method, _ in self.listings]
        self.listings.clear()
        return methods

    async def set_log_level(self, level: str) -> None:
        await self._request("level", level)

    async def subscribe(self, uri: str) -> None:
        await self._request("subscribe", uri)

    async def _request(self, method: str, value: str) -> None:
        self.requests.append((method, value))
        if value in self.refusals:
            raise self.refusals[value]

    @contextlib.asynccontextmanager
    async def changes(self, *kinds: str) -> AsyncIterator[Any]:
        self.followed.append(kinds)
        if self.quiet:
            await asyncio.Event().wait()
        yield self._changes()

    async def _changes(self) -> AsyncIterator[Any]:
        while True:
            kind = await self.changes_made.get()
            if kind == "end":
                raise RpcError(-32601, "no more")
            yield SimpleNamespace(kind=kind)

    async def restore(self) -> None:
        self.restored += 1


class SlowFirstPrompts(FakeClient):
    """A client whose first request for prompts waits until the test releases it."""

    def __init__(self, clock: VirtualTime, *capabilities: str) -> None:
        super().__init__(clock, *capabilities)
        self.released = asyncio.Event()

    async def list_raw(self, method: str, member: str) -> list[Raw]:
        self.listings.append((method, self._clock.now))
        listed = raw_items([{"name": f"{member} {len(self.listings)}"}])
        if method == "prompts/list" and len(self.times(method)) == 1:
            await self.released.wait()
        if method in self.failures:
            raise self.failures[method]
        return listed


class Tasks:
    """The tasks of one connection, and the objects that they use."""

    def __init__(
        self,
        client: FakeClient,
        kinds: Iterable[ListKind] = (TOOLS,),
        *,
        for_client: bool = True,
        **settings: float,
    ) -> None:
        self.client = client
        self.owner = FakeOwner(UpstreamSettings(**{"health_interval": 0, **settings}))  # type: ignore[arg-type]
        self.lists = ServerLists(kinds, for_client=for_client)
        self.changed: list[ListKind] = []
        self.lists.on_changed = self.changed.append
        given: Any = client
        self.tasks = ConnectionTasks(self.owner, given, self.lists)

    async def begin(self, wanted: DesiredState | None = None) -> None:
        await self.tasks.begin(wanted or DesiredState())

    async def run(self, seconds: float) -> None:
        """Run the tasks of the connection for some time."""
        await self.begin()
        await asyncio.sleep(seconds)
        await self.tasks.end()


# Pings


@pytest.mark.parametrize("seed", range(5))
async def test_pings_are_sent_at_the_interval_with_a_tenth_of_jitter(
    virtual_time: VirtualTime, seed: int
) -> None:
    random.seed(seed)
    client, begun = FakeClient(virtual_time), virtual_time.now
    await Tasks(client, health_interval=60, list_retry=0).run(500)
    gaps = [b - a for a, b in zip([begun, *client.pings], client.pings, strict=False)]
    assert len(gaps) >= 7
    assert all(54 <= gap <= 66 for gap in gaps)


async def test_servers_that_started_together_are_not_pinged_together(
    virtual_time: VirtualTime,
) -> None:
    clients = [FakeClient(virtual_time) for _ in range(20)]
    await asyncio.gather(*(Tasks(client, health_interval=60).run(70) for client in clients))
    assert len({client.pings[0] for client in clients}) == 20


async def test_a_connection_that_misses_two_pings_is_lost(virtual_time: VirtualTime) -> None:
    tasks = Tasks(FakeClient(virtual_time), health_interval=60)
    tasks.client.healthy = False
    await tasks.run(500)
    assert len(tasks.client.pings) == 2
    why = tasks.owner.lost.result()
    assert (type(why), str(why)) == (ConnectFailed, "the server does not respond: silence")


async def test_a_response_to_a_ping_resets_the_number_of_missed_pings(
    virtual_time: VirtualTime,
) -> None:
    tasks = Tasks(FakeClient(virtual_time), health_interval=60)
    client, answers = tasks.client, iter([False, True] * 10)

    async def every_second() -> None:
        client.pings.append(virtual_time.now)
        if not next(answers):
            raise ConnectFailed("silence")

    client.ping = every_second  # type: ignore[method-assign]
    await tasks.run(500)
    assert len(client.pings) >= 7
    assert not tasks.owner.lost.done()


async def test_pings_that_this_machine_cannot_send_do_not_count_as_missed(
    virtual_time: VirtualTime,
) -> None:
    tasks = Tasks(FakeClient(virtual_time), health_interval=60)
    tasks.client.healthy = False
    tasks.client.silence = LocalResourceError("no ping", "file descriptors")
    await tasks.run(500)
    assert len(tasks.client.pings) >= 7
    assert not tasks.owner.lost.done()


@pytest.mark.parametrize("before", [0.0, 1000.0])
async def test_a_changed_interval_of_pings_applies_to_an_open_connection(
    virtual_time: VirtualTime, before: float
) -> None:
    tasks = Tasks(FakeClient(virtual_time), health_interval=before)
    await tasks.begin()
    await asyncio.sleep(20)
    tasks.owner.settings = UpstreamSettings(health_interval=60)
    tasks.tasks.settings_changed()
    await asyncio.sleep(70)
    assert len(tasks.client.pings) == 1
    tasks.owner.settings = UpstreamSettings(health_interval=0)
    tasks.tasks.settings_changed()
    await asyncio.sleep(500)
    assert len(tasks.client.pings) == 1
    await tasks.tasks.end()


async def test_settings_that_change_during_the_first_lists_apply_once_they_are_read(
    virtual_time: VirtualTime,
) -> None:
    client = SlowFirstPrompts(virtual_time, "prompts")
    tasks = Tasks(client, (PROMPTS,), health_interval=0)
    beginning = asyncio.create_task(tasks.begin())
    await asyncio.sleep(1)
    tasks.owner.settings = UpstreamSettings(health_interval=60)
    tasks.tasks.settings_changed()
    await asyncio.sleep(0.5)
    client.released.set()
    await beginning
    await asyncio.sleep(70)
    assert len(client.pings) == 1
    await tasks.tasks.end()


async def test_a_busy_server_is_not_pinged(virtual_time: VirtualTime) -> None:
    tasks = Tasks(FakeClient(virtual_time), health_interval=60)
    tasks.owner.busy = True
    await tasks.run(500)
    assert tasks.client.pings == []


# Requests for lists


async def test_a_failed_list_is_requested_again_with_growing_delays_of_up_to_a_minute(
    virtual_time: VirtualTime,
) -> None:
    tasks = Tasks(FakeClient(virtual_time), list_retry=5)
    tasks.client.failures["tools/list"] = RpcError(-32603, "not now")
    await tasks.run(400)
    gaps = [b - a for a, b in pairwise(tasks.client.times())]
    assert [round(gap) for gap in gaps] == [5, 10, 20, 40, 60, 60, 60, 60, 60]


async def test_a_changed_delay_of_failed_lists_applies_to_an_open_connection(
    virtual_time: VirtualTime,
) -> None:
    tasks = Tasks(FakeClient(virtual_time), list_retry=0)
    tasks.client.failures["tools/list"] = RpcError(-32603, "broken")
    await tasks.begin()
    await asyncio.sleep(100)
    tasks.owner.settings = UpstreamSettings(health_interval=0, list_retry=5)
    tasks.tasks.settings_changed()
    await asyncio.sleep(16)
    times = tasks.client.times()
    assert [b - a for a, b in pairwise(times)] == [105.0, 10.0]
    await tasks.tasks.end()


async def test_only_failed_lists_are_requested_again(virtual_time: VirtualTime) -> None:
    tasks = Tasks(FakeClient(virtual_time, "tools", "prompts"), (TOOLS, PROMPTS), list_retry=5)
    client, lists = tasks.client, tasks.lists
    error = client.failures["prompts/list"] = RpcError(-32603, "not now")
    await tasks.begin()
    assert (client.methods(), lists.errors) == (["tools/list", "prompts/list"], {PROMPTS: error})
    await asyncio.sleep(6)
    assert (client.methods(), lists.errors) == (["prompts/list"], {PROMPTS: error})
    del client.failures["prompts/list"]
    await asyncio.sleep(11)
    assert (client.methods(), lists.errors, set(lists.items)) == (
        ["prompts/list"],
        {},
        {TOOLS, PROMPTS},
    )
    await tasks.tasks.end()


async def test_a_list_request_without_a_response_times_out_after_two_minutes(
    virtual_time: VirtualTime,
) -> None:
    tasks = Tasks(FakeClient(virtual_time), list_retry=0)
    await tasks.begin()
    before = tasks.lists.tools
    tasks.client.hanging.add("tools/list")
    tasks.tasks.heard("notifications/tools/list_changed")
    await asyncio.sleep(LIST_SECONDS.value)
    assert LIST_SECONDS.value == 120
    assert tasks.lists.error is None
    await asyncio.sleep(0.2)  # longer than the pause between two list requests
    error = tasks.lists.errors[TOOLS]
    assert isinstance(error, RequestTimeout)
    assert (error.seconds, error.method) == (120.0, "tools/list")
    assert tasks.lists.tools == before
    await tasks.tasks.end()


async def test_a_first_list_request_without_a_response_times_out_with_the_start(
    virtual_time: VirtualTime,
) -> None:
    tasks = Tasks(FakeClient(virtual_time), connect_timeout=7.0)
    tasks.client.hanging.add("tools/list")
    began = virtual_time.now
    await tasks.begin(WANTED)
    assert virtual_time.now == began + 7.0
    error = tasks.lists.errors[TOOLS]
    assert isinstance(error, RequestTimeout)
    assert (error.seconds, error.method) == (7.0, "tools/list")
    await tasks.tasks.end()


async def test_a_list_request_without_a_response_does_not_delay_other_lists(
    virtual_time: VirtualTime,
) -> None:
    client = FakeClient(virtual_time, "tools", "prompts", "resources")
    tasks = Tasks(client, ListKind, list_retry=5, connect_timeout=7.0)
    client.hanging.add("prompts/list")
    began = virtual_time.now
    await tasks.begin()
    assert virtual_time.now == began + 2.0
    assert set(tasks.lists.items) == {TOOLS, RESOURCES, TEMPLATES}
    client.hanging.clear()
    await asyncio.sleep(LIST_SECONDS.value)
    error = tasks.lists.errors[PROMPTS]
    assert isinstance(error, RequestTimeout)
    assert (error.seconds, error.method) == (LIST_SECONDS.value, "prompts/list")
    await asyncio.sleep(10)
    assert set(tasks.lists.items) == set(ListKind)
    assert tasks.lists.errors == {}
    await tasks.tasks.end()


async def test_a_list_that_fails_after_the_start_is_requested_again(
    virtual_time: VirtualTime,
) -> None:
    client = SlowFirstPrompts(virtual_time, "tools", "prompts")
    client.failures["prompts/list"] = RpcError(-32603, "no")
    tasks = Tasks(client, [TOOLS, PROMPTS], list_retry=5)
    await tasks.begin()
    client.released.set()  # the response arrives after the time limit of the start
    await asyncio.sleep(1)
    assert set(tasks.lists.errors) == {PROMPTS}
    client.failures.clear()
    await asyncio.sleep(10)
    assert (set(tasks.lists.items), tasks.lists.errors) == ({TOOLS, PROMPTS}, {})
    await tasks.tasks.end()


async def test_a_late_response_does_not_replace_a_newer_list(virtual_time: VirtualTime) -> None:
    client = SlowFirstPrompts(virtual_time, "tools", "prompts")
    tasks = Tasks(client, [TOOLS, PROMPTS])
    await tasks.begin()
    tasks.tasks.heard("notifications/prompts/list_changed")
    await asyncio.sleep(1)
    newest = tasks.lists.items[PROMPTS]
    assert newest == raw_items([{"name": "prompts 3"}])
    client.released.set()  # releases the first request, which was sent before the change
    await asyncio.sleep(1)
    assert tasks.lists.items[PROMPTS] == newest
    await tasks.tasks.end()


async def test_a_list_that_the_server_does_not_declare_is_empty_without_a_request(
    virtual_time: VirtualTime,
) -> None:
    for capabilities in ({"tools": {}, "prompts": None}, {"tools": {}, "resources": False}):
        client = FakeClient(virtual_time)
        client.server = {"capabilities": capabilities}
        tasks = Tasks(client, ListKind)
        await tasks.run(1)
        assert client.methods() == ["tools/list"]
        empty = {PROMPTS: [], RESOURCES: [], TEMPLATES: []}
        assert {kind: tasks.lists.items[kind] for kind in empty} == empty
    client = FakeClient(virtual_time)
    client.server = {"capabilities": ["tools"]}  # malformed
    tasks = Tasks(client, ListKind)
    await tasks.run(1)
    assert (client.listings, set(tasks.lists.items)) == ([], set(ListKind))


@pytest.mark.parametrize(
    "error",
    [RpcError(-32603, "no"), OSError("no"), msgspec.DecodeError("no"), RequestTimeout(1.0, "x")],
    ids=lambda error: type(error).__name__,
)
async def test_a_list_that_fails_does_not_affect_other_lists(
    virtual_time: VirtualTime, error: Exception
) -> None:
    client = FakeClient(virtual_time, "tools", "prompts", "resources")
    tasks = Tasks(client, ListKind)
    client.failures["tools/list"] = error
    await tasks.begin()
    assert tasks.lists.errors == {TOOLS: error}
    assert set(tasks.lists.items) == {PROMPTS, RESOURCES, TEMPLATES}
    assert tasks.changed == list(ListKind)
    await tasks.tasks.end()


async def test_a_server_without_the_templates_method_has_no_templates(
    virtual_time: VirtualTime,
) -> None:
    client = FakeClient(virtual_time, "resources")
    tasks = Tasks(client, (RESOURCES, TEMPLATES))
    error = client.failures["resources/templates/list"] = RpcError(-32601, "Method not found")
    await tasks.begin()
    assert (tasks.lists.items[TEMPLATES], tasks.lists.errors) == ([], {})
    tasks.tasks.refresh()
    await asyncio.sleep(1)
    assert tasks.lists.errors == {TEMPLATES: error}  # a list that was read before is kept
    await tasks.tasks.end()


@pytest.mark.parametrize("error", [ConnectFailed("gone"), ChannelClosed("gone")])
async def test_a_connection_that_is_lost_during_the_first_lists_is_not_used(
    virtual_time: VirtualTime, error: Exception
) -> None:
    tasks = Tasks(FakeClient(virtual_time))
    tasks.client.failures["tools/list"] = error
    with pytest.raises(type(error), match="gone"):
        await tasks.begin()
    assert tasks.lists.errors == {TOOLS: error}
    await tasks.tasks.end()


def away(error: Exception) -> RetriesExhausted:
    exhausted = RetriesExhausted("tired")
    exhausted.__cause__ = error
    return exhausted


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (ConnectFailed("away"), True),
        (away(ConnectFailed("away")), True),
        (ChannelClosed("gone"), False),  # the loss of a channel is reported by the channel itself
        (away(RequestTimeout(5.0, "x")), False),
        (RpcError(-32603, "no"), False),
    ],
    ids=["away", "away for long", "closed", "slow", "refused"],
)
async def test_a_server_that_becomes_unreachable_during_a_list_request_is_lost(
    virtual_time: VirtualTime, error: Exception, lost: bool
) -> None:
    tasks = Tasks(FakeClient(virtual_time), list_retry=0)
    await tasks.begin()
    tasks.client.failures["tools/list"] = error
    tasks.tasks.refresh()
    await asyncio.sleep(10)
    assert tasks.owner.lost.done() is lost
    assert tasks.lists.errors == {TOOLS: error}
    await tasks.tasks.end()


async def test_remaining_lists_are_requested_later_after_a_lost_response(
    virtual_time: VirtualTime,
) -> None:
    """Over HTTP each response has its own connection, so losing one response ends nothing else."""
    client = FakeClient(virtual_time, "resources")
    tasks = Tasks(client, (RESOURCES, TEMPLATES), list_retry=5)
    await tasks.begin()
    client.methods()
    client.failures["resources/list"] = ChannelClosed("lost")
    tasks.tasks.heard("notifications/resources/list_changed")
    await asyncio.sleep(1)
    client.failures.clear()
    await asyncio.sleep(20)
    assert tasks.lists.errors == {}
    assert "resources/templates/list" in client.methods()
    await tasks.tasks.end()


@pytest.mark.parametrize("for_client", [True, False])
async def test_the_client_receives_listed_tools_only_if_for_client_is_set(
    virtual_time: VirtualTime, for_client: bool
) -> None:
    tasks = Tasks(FakeClient(virtual_time), for_client=for_client)
    await tasks.begin()
    await asyncio.sleep(1)
    tasks.tasks.refresh()
    await asyncio.sleep(1)
    assert tasks.client.learned == ([["tools 1"], ["tools 2"]] if for_client else [])
    await tasks.tasks.end()


# Changes


@pytest.mark.parametrize(
    ("kinds", "followed"),
    [(("tools",), [("tools",)]), (("prompts", "tools"), [("tools", "prompts")]), ((), [])],
)
async def test_declared_list_changes_are_followed_with_a_subscription(
    virtual_time: VirtualTime, kinds: tuple[str, ...], followed: list[Any]
) -> None:
    client = FakeClient(virtual_time, changes=kinds)
    tasks = Tasks(client)
    await tasks.begin()
    assert client.followed == followed
    await asyncio.sleep(10)
    if kinds:
        client.changes_made.put_nowait("prompts")
        await asyncio.sleep(10)
        assert len(client.listings) == 1  # the tools were not requested again
        client.changes_made.put_nowait("tools")
        tasks.tasks.heard("notifications/tools/list_changed")  # the same change is announced again
    else:
        tasks.tasks.heard("notifications/prompts/list_changed")
        tasks.tasks.heard("notifications/message")
        await asyncio.sleep(10)
        assert len(client.listings) == 1
        tasks.tasks.heard("notifications/tools/list_changed")
    await asyncio.sleep(10)
    assert len(client.listings) == 2
    await tasks.tasks.end()


@pytest.mark.parametrize("followed", [True, False])
@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("tools", ["tools/list"]),
        ("prompts", ["prompts/list"]),
        ("resources", ["resources/list", "resources/templates/list"]),
        ("roots", []),
    ],
)
async def test_only_the_lists_that_changed_are_requested(
    virtual_time: VirtualTime, followed: bool, name: str, methods: list[str]
) -> None:
    names = ("tools", "prompts", "resources")
    client = FakeClient(virtual_time, *names, changes=names if followed else ())
    tasks = Tasks(client, ListKind)
    await tasks.begin()
    await asyncio.sleep(1)
    assert client.methods() == [kind.method for kind in ListKind]
    if followed:
        client.changes_made.put_nowait(name)
    else:
        tasks.tasks.heard(f"notifications/{name}/list_changed")
    await asyncio.sleep(1)
    assert client.methods() == methods
    await tasks.tasks.end()


async def test_list_change_notifications_are_handled_if_the_stream_of_changes_has_failed(
    virtual_time: VirtualTime,
) -> None:
    client = FakeClient(virtual_time, changes=("tools",))
    tasks = Tasks(client)
    client.changes_made.put_nowait("end")
    await tasks.begin()
    await asyncio.sleep(1)
    tasks.tasks.heard("notifications/tools/list_changed")
    await asyncio.sleep(1)
    assert client.methods() == ["tools/list", "tools/list"]
    assert not tasks.owner.lost.done()
    await tasks.tasks.end()


async def test_listing_waits_one_second_for_the_stream_of_changes(
    virtual_time: VirtualTime,
) -> None:
    quiet = Tasks(FakeClient(virtual_time, changes=("tools",)))
    quiet.client.quiet = True
    began = virtual_time.now
    await quiet.begin()
    assert quiet.client.times() == [began + 1.0]
    await quiet.tasks.end()
    refused = Tasks(FakeClient(virtual_time, changes=("tools",)))
    refused.client.changes_made.put_nowait("end")
    began = virtual_time.now
    await refused.begin()
    await asyncio.sleep(5)
    # The lists are requested without waiting for the stream.
    assert refused.client.times() == [began]
    await refused.tasks.end()


async def test_lists_that_change_continuously_are_requested_at_growing_intervals(
    virtual_time: VirtualTime,
) -> None:
    tasks = Tasks(FakeClient(virtual_time))
    await tasks.begin()
    for _ in range(6000):
        tasks.tasks.heard("notifications/tools/list_changed")
        await asyncio.sleep(0.01)
    gaps = [b - a for a, b in pairwise(tasks.client.times())]
    assert gaps == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, *[5.0] * 10], abs=0.02)
    await tasks.tasks.end()


# The desired state

WANTED = DesiredState(uris={"a:1": None, "a:2": None}, log_level="debug")


async def test_each_item_of_the_desired_state_is_restored_separately(
    virtual_time: VirtualTime,
) -> None:
    tasks = Tasks(FakeClient(virtual_time))
    client = tasks.client
    client.refusals["a:1"] = RpcError(5, "no")
    await tasks.begin(WANTED)
    assert client.requests == [("level", "debug"), ("subscribe", "a:1"), ("subscribe", "a:2")]
    assert tasks.lists.tools == [{"name": "tools 1"}]
    await tasks.tasks.end()
    assert tasks.tasks._tasks == set()


@pytest.mark.parametrize("error", [ConnectFailed("gone"), ZeroDivisionError("bug")])
async def test_a_connection_that_is_lost_while_state_is_restored_is_not_used(
    virtual_time: VirtualTime, error: Exception
) -> None:
    tasks = Tasks(FakeClient(virtual_time))
    tasks.client.refusals["a:2"] = error
    with pytest.raises(type(error)):
        await tasks.begin(WANTED)
    await tasks.tasks.end()


async def test_desired_states_of_two_servers_are_independent() -> None:
    DesiredState().uris["a:1"] = None
    assert DesiredState() == DesiredState(uris={}, log_level=None)


async def test_lists_and_desired_state_are_requested_in_a_new_session(
    virtual_time: VirtualTime,
) -> None:
    names = ("tools", "prompts", "resources")
    tasks = Tasks(FakeClient(virtual_time, *names), ListKind)
    client = tasks.client
    await tasks.begin()
    await asyncio.sleep(10)
    channel = client.transport.peer.channel
    assert channel.on_renewed is not None
    client.methods()
    renewed: Callable[[], None] = channel.on_renewed
    renewed()
    await asyncio.sleep(10)
    assert (client.restored, client.methods()) == (1, [kind.method for kind in ListKind])
    await tasks.tasks.end()


async def test_the_failure_of_a_background_task_ends_the_connection(
    virtual_time: VirtualTime,
) -> None:
    tasks = Tasks(FakeClient(virtual_time))
    await tasks.begin()
    tasks.client.failures["tools/list"] = ZeroDivisionError()
    tasks.tasks.heard("notifications/tools/list_changed")
    assert isinstance(await tasks.owner.lost, ZeroDivisionError)
    await tasks.tasks.end()


async def test_continuous_announcements_of_changes_are_reported(virtual_time: VirtualTime) -> None:
    tasks = Tasks(FakeClient(virtual_time))
    await tasks.begin()
    for _ in range(50):
        tasks.tasks.heard("notifications/tools/list_changed")
        await asyncio.sleep(0.01)
    assert tasks.owner.warnings == []  # a few changes are not reported
    for _ in range(500):
        tasks.tasks.heard("notifications/tools/list_changed")
        await asyncio.sleep(0.01)
    [warning, *others] = tasks.owner.warnings
    assert warning == "announces changes of its lists continuously, and is asked at most every 5 s"
    assert set(others) <= {warning}
    await tasks.tasks.end()
