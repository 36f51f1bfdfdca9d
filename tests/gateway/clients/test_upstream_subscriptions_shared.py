"""Subscriptions at servers, shared by all watchers of a resource."""

import asyncio
from typing import Any

import pytest

from fairlead.errors import ConnectFailed, RpcError
from fairlead.gateway.clients.upstream_subscriptions import UpstreamSubscriptions
from fairlead.transport.background_tasks import BackgroundTasks
from tests.support.virtual_time import VirtualTime


class FakeServer:
    """An upstream that records subscriptions."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.error: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def subscribe(self, uri: str) -> None:
        self.said.append(f"+{uri}")
        await self.open.wait()
        if self.error is not None:
            raise self.error

    async def unsubscribe(self, uri: str) -> None:
        self.said.append(f"-{uri}")


class Named:
    def __init__(self, name: str, *replicas: str) -> None:
        self.name = name
        self.names = list(replicas)


class Place:
    def __init__(self, *replicas: str) -> None:
        self.member: Any = Named("red", *(replicas or ("red",)))
        self.servers = {one: FakeServer() for one in self.member.names}
        self.tasks = BackgroundTasks()
        upstreams: Any = self.servers
        self.shared = UpstreamSubscriptions(upstreams, {"red": self.member}, self.tasks)

    async def add(self, uri: str, watcher: object = "me", deadline: float = 5.0) -> bool:
        return await self.shared.add(self.member, uri, watcher, deadline)

    async def idle(self) -> None:
        async with asyncio.timeout(5):
            while self.tasks:
                await asyncio.sleep(0)


async def test_a_server_gets_one_request_for_all_watchers_of_a_resource() -> None:
    place = Place()
    server = place.servers["red"]
    assert await place.add("a:1", "one")
    assert await place.add("a:1", "other")
    assert (server.said, len(place.shared)) == (["+a:1"], 1)
    place.shared.remove("red", "a:1", "one")
    await place.idle()
    assert place.shared.uris(place.member) == ["a:1"]
    assert server.said == ["+a:1"]
    place.shared.remove("red", "a:1", "other")
    place.shared.remove("red", "a:1", "other")  # the watcher was removed already
    await place.idle()
    assert (server.said, len(place.shared)) == (["+a:1", "-a:1"], 0)
    assert place.shared._by_member == {}
    assert place.shared._asked == set()


async def test_a_refusal_removes_the_watcher() -> None:
    place = Place()
    place.servers["red"].error = RpcError(-32601, "no")
    assert not await place.add("a:1")
    await place.idle()
    assert (len(place.shared), place.shared._asking) == (0, {})


async def test_a_disconnected_server_gets_the_request_once_it_is_connected() -> None:
    place = Place()
    server = place.servers["red"]
    server.error = ConnectFailed("away")
    assert await place.add("a:1")
    server.error = None
    place.shared.connected(place.member, "red")
    await place.idle()
    assert server.said == ["+a:1", "+a:1"]
    place.shared.connected(place.member, "red")  # the replica is subscribed already
    await place.idle()
    assert server.said == ["+a:1", "+a:1"]
    place.shared.forget(place.member)  # a new server with this name has no subscription yet
    place.shared.connected(place.member, "red")
    await place.idle()
    assert server.said == ["+a:1"] * 3


@pytest.mark.parametrize(("refusing", "granted"), [((), True), (("a",), True), (("a", "b"), False)])
async def test_a_subscription_succeeds_if_one_replica_accepts_it(
    refusing: tuple[str, ...], granted: bool
) -> None:
    place = Place("a", "b")
    for name in refusing:
        place.servers[name].error = RpcError(-32601, "no")
    assert await place.add("x:1") is granted
    assert all(one.said == ["+x:1"] for one in place.servers.values())
    await place.idle()


async def test_subscribing_returns_at_the_deadline(
    virtual_time: VirtualTime,
) -> None:
    place = Place()
    server = place.servers["red"]
    server.open.clear()
    began = virtual_time.now
    assert await place.add("a:1", deadline=3.0)
    assert virtual_time.now == began + 3.0
    place.shared.remove("red", "a:1", "me")  # during the request
    assert server.said == ["+a:1"]
    server.open.set()
    await place.idle()
    assert server.said == ["+a:1", "-a:1"]


async def test_a_cancelled_wait_removes_the_watcher() -> None:
    place = Place()
    place.servers["red"].open.clear()
    waiting = asyncio.create_task(place.add("a:1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(place.shared) == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert len(place.shared) == 0
    place.servers["red"].open.set()
    await place.idle()


async def test_all_given_resources_are_subscribed() -> None:
    place = Place()
    wanted = {f"a:{n}": place.member for n in range(40)}
    assert await place.shared.add_all(wanted, "me", 5.0) == list(wanted)
    assert sorted(place.servers["red"].said) == sorted(f"+{uri}" for uri in wanted)


async def test_a_subscription_at_a_removed_server_counts_as_accepted() -> None:
    place = Place()
    place.servers.clear()
    assert await place.add("a:1")
    place.shared.remove("red", "a:1", "me")
    await place.idle()
    assert len(place.shared) == 0


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (None, ["a:1", "a:1/x", "b:2"]),
        ("a:1", ["a:1"]),
        ("a:1/x", ["a:1/x"]),
        ("a:1/x/y", ["a:1", "a:1/x"]),
        ("a:1/z", ["a:1"]),
        ("a", []),
        ("c:1", []),
    ],
)
@pytest.mark.parametrize("more", [0, 50], ids=["few", "many"])
async def test_an_update_of_a_child_resource_is_reported_for_the_watched_uri(
    changed: str | None, found: list[str], more: int
) -> None:
    place = Place()
    for uri in ("a:1", "a:1/x", "b:2", *(f"z:{n}" for n in range(more))):
        await place.add(uri)
    uris = place.shared.uris(place.member, changed)
    assert [uri for uri in uris if not uri.startswith("z:")] == found
    other: Any = Named("green", "green")
    assert place.shared.uris(other) == []


async def test_removing_an_unknown_watcher_has_no_effect() -> None:
    place = Place()
    place.shared.remove("red", "a:1", "me")
    await place.add("a:1", "me")
    await place.add("a:1", "you")
    place.shared.remove("red", "a:1", "other")
    place.shared.remove("blue", "a:1", "me")
    place.shared.remove("red", "b:1", "me")
    await place.idle()
    assert place.servers["red"].said == ["+a:1"]
    assert place.shared.uris(place.member) == ["a:1"]
    place.shared.remove("red", "a:1", "me")
    assert (len(place.shared), place.shared.uris(place.member)) == (1, ["a:1"])
    place.shared.remove("red", "a:1", "you")
    assert (len(place.shared), place.shared.uris(place.member)) == (0, [])
    assert place.shared.uris(place.member) == []
    await place.idle()
    assert place.servers["red"].said == ["+a:1", "-a:1"]


async def test_subscribing_many_resources_does_not_wait_between_requests(
    virtual_time: VirtualTime,
) -> None:
    place, begun = Place(), virtual_time.now
    wanted = {f"a:{number}": place.member for number in range(40)}
    place.servers["red"].said.clear()
    assert await place.shared.add_all(wanted, "me", 5.0) == list(wanted)
    assert virtual_time.now == begun
    assert len(place.servers["red"].said) == 40


async def test_subscriptions_at_slow_servers_count_as_accepted(
    virtual_time: VirtualTime,
) -> None:
    place, begun = Place(), virtual_time.now
    place.servers["red"].open.clear()
    assert await place.add("a:1", deadline=3.0)
    assert virtual_time.now - begun == pytest.approx(3.0)
    place.servers["red"].open.set()
    await place.idle()


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (None, ["a:1", "a:1/b", "c:1"]),
        ("a:1", ["a:1"]),
        ("a:1/b", ["a:1/b"]),
        ("a:1/x", ["a:1"]),
        ("a:1/b/c", ["a:1", "a:1/b"]),
        ("a:", []),
        ("d:1", []),
    ],
)
async def test_an_update_is_reported_for_watched_uris_that_are_a_prefix_of_the_uri(
    changed: str | None, found: list[str]
) -> None:
    place = Place()
    for uri in ("a:1", "a:1/b", "c:1"):
        await place.add(uri)
    assert place.shared.uris(place.member, changed) == found
    # with many watched URIs, the prefixes of the changed URI are looked up
    for number in range(10):
        await place.add(f"z:{number}")
    if changed is not None:
        assert place.shared.uris(place.member, changed) == found


async def test_a_cancelled_watcher_is_removed() -> None:
    place = Place()
    place.servers["red"].open.clear()
    wanted = {"a:1": place.member, "a:2": place.member}
    asking = asyncio.create_task(place.shared.add_all(wanted, "me", 5.0))
    await asyncio.sleep(0)
    assert len(place.shared) == 2
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(place.shared) == 0
    place.servers["red"].open.set()
    await place.idle()
    assert sorted(place.servers["red"].said) == ["+a:1", "+a:2", "-a:1", "-a:2"]


async def test_subscribing_many_resources_does_not_block_other_tasks() -> None:
    place, asked = Place(), []

    async def look() -> None:
        while True:
            asked.append(len(place.shared))
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    await place.shared.add_all({f"a:{n}": place.member for n in range(33)}, "me", 5.0)
    looking.cancel()
    assert list(dict.fromkeys(asked)) == [16, 32, 33]
    await place.idle()
