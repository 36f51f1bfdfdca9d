"""Resources and prompts of many servers: whose is which."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.errors import ConnectFailed, RpcError
from fairlead.manager.resources_prompts import ResourcesAndPrompts
from tests.support.virtual_time import VirtualTime


class FakeServer:
    """A supervised server that lists as it is told."""

    def __init__(self, name: str, state: str = "connected", **lists: Any) -> None:
        self.name, self.state, self.lists = name, state, lists
        self.client = SimpleNamespace(
            instructions=lists.get("instructions"),
            list_resources=lambda: self._list("resources"),
            list_resource_templates=lambda: self._list("templates"),
            list_prompts=lambda: self._list("prompts"),
            read_resource=lambda uri: self._said("read", uri),
            get_prompt=lambda *of: self._said("prompt", *of),
        )
        self.asked: list[Any] = []

    async def _list(self, kind: str) -> Any:
        found = self.lists.get(kind, [])
        if isinstance(found, BaseException):
            raise found
        if found is asyncio.Event:
            await found().wait()
        return found

    async def _said(self, *what: Any) -> dict[str, Any]:
        return {"server": self.name, "what": what}

    async def read(self, method: str, fetch: Callable[[Any], Awaitable[Any]]) -> Any:
        self.asked.append(method)
        return await fetch(self.client)

    async def subscribe(self, uri: str) -> None:
        self.asked.append(("+", uri))

    async def unsubscribe(self, uri: str) -> None:
        self.asked.append(("-", uri))

    async def set_log_level(self, level: str) -> None:
        self.asked.append(("level", level))


def manager(*servers: FakeServer) -> ResourcesAndPrompts:
    one = ResourcesAndPrompts()
    found: Any = {server.name: server for server in servers}
    one._supervisors = found
    return one


def uris(*several: str) -> list[dict[str, str]]:
    return [{"uri": uri} for uri in several]


def templates(*several: str) -> list[dict[str, str]]:
    return [{"uriTemplate": text} for text in several]


async def test_lists_are_those_of_all_that_are_connected() -> None:
    red = FakeServer("red", resources=uris("a:1"), prompts=[{"name": "p"}])
    blue = FakeServer("blue", resources=uris("a:2"), templates=templates("b:{n}"))
    away = FakeServer("away", state="failed", resources=uris("a:3"))
    broken = FakeServer("broken", resources=ConnectFailed("lost"))
    several = manager(red, blue, away, broken)
    assert await several.list_resources() == [("blue", {"uri": "a:2"}), ("red", {"uri": "a:1"})]
    assert await several.list_resource_templates() == [("blue", {"uriTemplate": "b:{n}"})]
    assert await several.list_prompts() == [("red", {"name": "p"})]
    assert away.asked == []
    assert red.asked == ["resources/list", "resources/templates/list", "prompts/list"]


async def test_a_server_that_hangs_is_left_out_after_half_a_minute(
    virtual_time: VirtualTime,
) -> None:
    began = virtual_time.now
    slow, fast = FakeServer("slow", resources=asyncio.Event), FakeServer("x", resources=uris("a"))
    assert await manager(slow, fast).list_resources() == [("x", {"uri": "a"})]
    assert virtual_time.now == began + 30.0


@pytest.mark.parametrize(
    ("uri", "owner"),
    [
        ("note:1", "listed"),  # exactly this one, also if a template fits
        ("note:2", "narrow"),
        ("note:2/x", "wide"),
        ("other:1", None),
        ("same:1", "narrow"),  # the first of two that say as much
    ],
)
async def test_a_resource_is_of_who_lists_it_or_whose_template_says_most(
    uri: str, owner: str | None
) -> None:
    several = manager(
        FakeServer("listed", resources=uris("note:1")),
        FakeServer("narrow", templates=templates("note:{n}", "{", "same:{n}")),
        FakeServer("wide", templates=templates("{+all}/x", "same:{m}")),
    )
    if owner is None:
        with pytest.raises(RpcError, match=f"No server has the resource {uri}") as refused:
            await several.read_resource(uri)
        assert (refused.value.code, refused.value.data) == (-32602, {"uri": uri})
    else:
        assert await several.read_resource(uri) == {"server": owner, "what": ("read", uri)}
        await several.subscribe(uri)
    told = await several.read_resource(uri, server="listed")
    assert told["server"] == "listed"  # who says whose it is need not look


async def test_one_server_or_all_are_asked() -> None:
    red, blue = FakeServer("red"), FakeServer("blue")
    several = manager(red, blue)
    await several.subscribe("a:1", server="red")
    await several.unsubscribe("a:1", server="red")
    await several.unsubscribe("a:2")
    await several.set_log_level("debug")
    await several.set_log_level("info", server="blue")
    assert red.asked == [("+", "a:1"), ("-", "a:1"), ("-", "a:2"), ("level", "debug")]
    assert blue.asked == [("-", "a:2"), ("level", "debug"), ("level", "info")]
    prompt = await several.get_prompt("blue", "p", {"a": "b"})
    assert prompt == {"server": "blue", "what": ("prompt", "p", {"a": "b"})}
    with pytest.raises(RpcError, match="There is no server 'green'") as refused:
        await several.get_prompt("green", "p")
    assert refused.value.code == -32602


def test_instructions_are_those_of_servers_that_have_some() -> None:
    red, blue = FakeServer("red", instructions="read"), FakeServer("blue", instructions="")
    away = FakeServer("away", instructions="x")
    away.client = None  # type: ignore[assignment]
    assert manager(red, blue, away).get_instructions() == {"red": "read"}
