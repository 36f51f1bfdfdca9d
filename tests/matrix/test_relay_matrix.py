"""The matrix scenario through a relay, for combinations of clients and servers."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.gateway import Relay
from fairlead.protocol.revisions import Revision
from tests.matrix.test_matrix import (
    LIMIT,
    PROGRAM,
    Scene,
    big_payload,
    cancelling,
    changes,
    failures,
    list_and_call,
    progress_and_logs,
    questions,
    serving,
)
from tests.support.matrix_server import make

FRONTS = ["memory", "http", "ws", "sse"]
UPSTREAMS = ["memory", "stdio", "http", "ws", "sse"]


def cells() -> list[Any]:
    """Return combinations of client and server: both eras on each side over all transports, and
    older revisions from HTTP to stdio.
    """
    found = []
    for revision in Revision:
        for era in ("handshake", "stateless"):
            for front in FRONTS:
                for upstream in UPSTREAMS:
                    # HTTP+SSE exists only in the handshake era.
                    if front == "sse" and revision.stateless:
                        continue
                    if upstream == "sse" and era == "stateless":
                        continue
                    newest = revision in (Revision.V2025_11_25, Revision.V2026_07_28)
                    if newest or (front == "http" and upstream == "stdio"):
                        found.append(pytest.param(revision, era, front, upstream))
    return found


@contextlib.asynccontextmanager
async def through_a_relay(
    revision: Revision, era: str, front: str, upstream: str, scene: Scene
) -> AsyncIterator[MCPClient]:
    version = "auto" if revision.stateless else revision.value
    config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT)
    callbacks = scene.callbacks()
    async with contextlib.AsyncExitStack() as stack:
        target: Any = make()
        if upstream == "stdio":
            target = {"command": sys.executable, "args": [str(PROGRAM)]}
        elif upstream != "memory":
            url = await stack.enter_async_context(serving(target))
            target = {
                "http": {"type": "http", "url": url},
                "sse": {"type": "sse", "url": url.replace("/mcp", "/sse")},
                "ws": {"type": "ws", "url": _ws(url)},
            }[upstream]
        relay = Relay(target, "matrix", era=era)
        stack.push_async_callback(relay.close)
        if front == "memory":
            connecting = MCPClient.connect_inprocess(relay, config, **callbacks)
        else:
            url = await stack.enter_async_context(serving(relay))
            if front == "ws":
                connecting = MCPClient.connect_websocket(_ws(url), config, **callbacks)
            elif front == "sse":
                url = url.replace("/mcp", "/sse")
                connecting = MCPClient.connect_http(url, config, mode="sse", **callbacks)
            else:
                connecting = MCPClient.connect_http(url, config, **callbacks)
        yield await stack.enter_async_context(connecting)


def _ws(url: str) -> str:
    return url.replace("http://", "ws://").replace("/mcp", "/ws")


@pytest.mark.covers("GTW-02", "GTW-03")
@pytest.mark.parametrize(("revision", "era", "front", "upstream"), cells())
async def test_all_features_of_the_matrix_scenario_work_through_a_relay(
    revision: Revision, era: str, front: str, upstream: str
) -> None:
    scene = Scene()
    async with (
        asyncio.timeout(LIMIT),
        through_a_relay(revision, era, front, upstream, scene) as client,
    ):
        assert client.protocol_version == revision
        await list_and_call(client)
        await progress_and_logs(client, scene)
        await cancelling(client, scene)
        await questions(client, revision)
        await changes(client, scene)
        await failures(client)
        await big_payload(client)
