"""The matrix scenario through a gateway with several servers, with merged and own names."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.gateway import Gateway
from fairlead.protocol.revisions import Revision
from tests.matrix.test_matrix import (
    LIMIT,
    PROGRAM,
    Scene,
    big_payload,
    cancelling,
    changes,
    failures,
    progress_and_logs,
    questions,
    serving,
)
from tests.support.matrix_server import make

PROCESS = {"command": sys.executable, "args": [str(PROGRAM)]}


class Merged:
    """A client that adds the prefix of the server `one` to every name."""

    def __init__(self, client: MCPClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def call(self, name: str, *args: Any, **options: Any) -> Any:
        return await self._client.call(f"one_{name}", *args, **options)

    async def call_tool(self, name: str, *args: Any, **options: Any) -> Any:
        return await self._client.call_tool(f"one_{name}", *args, **options)

    async def get_prompt(self, name: str, *args: Any) -> Any:
        return await self._client.get_prompt(f"one_{name}", *args)

    async def list_tools(self) -> list[dict[str, Any]]:
        tools = await self._client.list_tools(cache=False)
        return [tool for tool in tools if tool["name"].startswith("one_")]


@contextlib.asynccontextmanager
async def through_a_gateway(
    revision: Revision, front: str, upstream: str, scene: Scene
) -> AsyncIterator[tuple[Gateway, MCPClient]]:
    """Connect a client to a gateway with two working servers and a failed one."""
    version = "auto" if revision.stateless else revision.value
    config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT)
    async with contextlib.AsyncExitStack() as stack:
        target: dict[str, Any] = PROCESS
        if upstream == "http":
            target = {"url": await stack.enter_async_context(serving(make()))}
        gateway = await stack.enter_async_context(Gateway())
        dead = {"command": "/nowhere/to/be/found"}
        await gateway.connect({"one": target, "two": PROCESS, "dead": dead})
        if front == "memory":
            connecting = MCPClient.connect_inprocess(gateway, config, **scene.callbacks())
        else:
            url = await stack.enter_async_context(serving(cast(Any, gateway)))
            path = "/one" if front == "own path" else ""
            connecting = MCPClient.connect_http(url + path, config, **scene.callbacks())
        yield gateway, await stack.enter_async_context(connecting)


@pytest.mark.parametrize("upstream", ["stdio", "http"])
@pytest.mark.parametrize("front", ["memory", "http", "own path"])
@pytest.mark.parametrize(
    "revision", [Revision.V2024_11_05, Revision.V2025_11_25, Revision.V2026_07_28]
)
async def test_all_features_of_the_matrix_scenario_work_through_a_gateway(
    revision: Revision, front: str, upstream: str
) -> None:
    scene = Scene()
    async with (
        asyncio.timeout(LIMIT),
        through_a_gateway(revision, front, upstream, scene) as (gateway, plain),
    ):
        assert plain.protocol_version == revision
        names = [tool["name"] for tool in await plain.list_tools(cache=False)]
        if front == "own path":
            client = plain
            assert "add" in names
            assert not any(name.startswith(("one_", "two_")) for name in names)
        else:
            client = cast(MCPClient, Merged(plain))
            assert {"one_add", "two_add"} <= set(names)
            assert (await plain.call("two_echo", {"text": "ho"})).text == "ho"
        assert (await client.call("add", {"a": 1, "b": 2})).text == "3"
        assert "note://one" in [found["uri"] for found in await client.list_resources()]
        assert (await client.read_resource("note://one"))["contents"][0]["text"] == "a note"
        prompt = await client.get_prompt("hello", {"name": "Bob"})
        assert prompt["messages"][0]["content"]["text"] == "Say hello to Bob"
        await progress_and_logs(client, scene)
        await cancelling(client, scene)
        await questions(client, revision)
        await failures(client)
        await big_payload(client)
        # Ignore notifications that were sent while the servers connected.
        while not gateway.is_ready:
            await asyncio.sleep(0.01)
        while not scene.notifications.empty():
            scene.notifications.get_nowait()
        await changes(client, scene)
