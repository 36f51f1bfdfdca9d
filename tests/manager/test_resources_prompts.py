"""Resources and prompts of many servers, and the server of each resource."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.errors import ConnectFailed, RpcError
from fairlead.manager.resources_prompts import ResourcesAndPrompts
from tests.support.virtual_time import VirtualTime


class FakeServer:
    """A fake server that lists the given items."""

    def __init__(self, name: str, state: str = "connected", **lists: Any) -> None:
        self.name, self.lists = name, lists
        client = SimpleNamespace(
            instructions=lists.get("instructions"),
            list_resources=lambda: self._list("resources"),
            list_resource_templates=lambda: self._list("templates"),
            list_prompts=lambda: self._list("prompts"),
            read_resource=lambda uri: self._result("read", uri),
            get_prompt=lambda *of: self._result("prompt", *of),
        )
        self.upstream: Any = SimpleNamespace(
            state=state,
            client=client,
            unsubscribe=lambda uri: self._note("-", uri),
            set_log_level=lambda level: self._note("level", level),
        )
        self.requests: list[Any] = []

    async def _list(self, kind: str) -> Any:
        found = self.lists.get(kind, [])
        if isinstance(found, BaseException):
            raise found
        if found is asyncio.Event:
            await found().wait()
        return found

    async def _result(self, *params: Any) -> dict[str, Any]:
        return {"server": self.name, "params": params}

    async def _note(self, *request: Any) -> None:
        self.requests.append(request)

    async def read(self, method: str, fetch: Callable[[Any], Awaitable[Any]]) -> Any:
        self.requests.append(method)
        return await fetch(self.upstream.client)

    async def subscribe(self, uri: str) -> None:
        await self._note("+", uri)


def manager(*servers: FakeServer) -> ResourcesAndPrompts:
    one = ResourcesAndPrompts()
    found: Any = {server.name: server for server in servers}
    one._calls = found
    return one


def uris(*several: str) -> list[dict[str, str]]:
    return [{"uri": uri} for uri in several]


def templates(*several: str) -> list[dict[str, str]]:
    return [{"uriTemplate": text} for text in several]


async def test_manager_lists_contain_the_items_of_all_connected_servers() -> None:
    red = FakeServer("red", resources=uris("a:1"), prompts=[{"name": "p"}])
    blue = FakeServer("blue", resources=uris("a:2"), templates=templates("b:{n}"))
    away = FakeServer("away", state="failed", resources=uris("a:3"))
    broken = FakeServer("broken", resources=ConnectFailed("lost"))
    several = manager(red, blue, away, broken)
    assert await several.list_resources() == [("blue", {"uri": "a:2"}), ("red", {"uri": "a:1"})]
    assert await several.list_resource_templates() == [("blue", {"uriTemplate": "b:{n}"})]
    assert await several.list_prompts() == [("red", {"name": "p"})]
    assert away.requests == []
    assert red.requests == ["resources/list", "resources/templates/list", "prompts/list"]


async def test_a_server_that_hangs_is_omitted_from_lists_after_half_a_minute(
    virtual_time: VirtualTime,
) -> None:
    began = virtual_time.now
    slow, fast = FakeServer("slow", resources=asyncio.Event), FakeServer("x", resources=uris("a"))
    assert await manager(slow, fast).list_resources() == [("x", {"uri": "a"})]
    assert virtual_time.now == began + 30.0


@pytest.mark.parametrize(
    ("uri", "owner"),
    [
        ("note:1", "listed"),  # an exact match takes precedence over templates
        ("note:2", "narrow"),
        ("note:2/x", "wide"),
        ("other:1", None),
        ("same:1", "narrow"),  # the first of two equally specific templates
    ],
)
async def test_a_resource_belongs_to_the_server_that_lists_it_or_has_the_most_specific_template(
    uri: str, owner: str | None
) -> None:
    servers = [
        FakeServer("listed", resources=uris("note:1")),
        FakeServer("narrow", templates=templates("note:{n}", "{", "same:{n}")),
        FakeServer("wide", templates=templates("{+all}/x", "same:{m}")),
    ]
    several = manager(*servers)
    if owner is None:
        with pytest.raises(RpcError, match=f"No server has the resource {uri}") as refused:
            await several.read_resource(uri)
        assert (refused.value.code, refused.value.data) == (-32602, {"uri": uri})
    else:
        assert await several.read_resource(uri) == {"server": owner, "params": ("read", uri)}
        await several.subscribe(uri)
        assert [one.name for one in servers if ("+", uri) in one.requests] == [owner]
    result = await several.read_resource(uri, server="listed")
    assert result["server"] == "listed"  # a server given by name is used without a lookup


async def test_unsubscribe_and_log_level_requests_without_a_server_name_go_to_all_servers() -> None:
    red, blue = FakeServer("red"), FakeServer("blue")
    several = manager(red, blue)
    await several.subscribe("a:1", server="red")
    await several.unsubscribe("a:1", server="red")
    await several.unsubscribe("a:2")
    await several.set_log_level("debug")
    await several.set_log_level("info", server="blue")
    assert red.requests == [("+", "a:1"), ("-", "a:1"), ("-", "a:2"), ("level", "debug")]
    assert blue.requests == [("-", "a:2"), ("level", "debug"), ("level", "info")]
    prompt = await several.get_prompt("blue", "p", {"a": "b"})
    assert prompt == {"server": "blue", "params": ("prompt", "p", {"a": "b"})}
    with pytest.raises(RpcError, match="Unknown server 'green'") as refused:
        await several.get_prompt("green", "p")
    assert refused.value.code == -32602


def test_instructions_omit_servers_that_have_none() -> None:
    red, blue = FakeServer("red", instructions="read"), FakeServer("blue", instructions="")
    away = FakeServer("away", instructions="x")
    away.upstream.client = None
    assert manager(red, blue, away).get_instructions() == {"red": "read"}
