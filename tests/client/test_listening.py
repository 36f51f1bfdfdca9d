"""Being told of changes, in the way of a stateless server."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from handmade import heard, program

from fairlead import MCPClient, MCPClientConfig, RpcError
from fairlead.client.eras import known_eras


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


TELLING = """
KEY = "io.modelcontextprotocol/subscriptionId"
for request in requests():
    params = request.get("params", {})
    if request["method"] == "subscriptions/listen":
        if params["notifications"].get("resourceSubscriptions") == ["memo://refused"]:
            refuse(request)
            continue
        meta = {KEY: request["id"]}
        tell("notifications/subscriptions/acknowledged",
             {"notifications": params["notifications"], "_meta": meta})
        tell("notifications/resources/updated", {"uri": "memo://a", "_meta": meta})
    elif request["method"] == "tools/call":
        if params["name"] == "die":
            os._exit(1)
        complete(request, content=[])
"""


@pytest.mark.covers("PRO-23", "PRO-35", "CLT-07")
@pytest.mark.parametrize("cache", [True, False])
async def test_one_long_request_carries_all_subscriptions(tmp_path: Path, cache: bool) -> None:
    told: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    command = program(tmp_path, TELLING, stateless=True)
    config = MCPClientConfig(cache=cache, auto_reconnect=True, retry_delay=0.01)
    async with MCPClient.connect_stdio(
        command, config, on_notification=lambda method, params: told.put_nowait((method, params))
    ) as client:
        async with asyncio.timeout(5):
            await client.subscribe("memo://a")
            await told.get()
            method, params = await told.get()
            assert (method, params["uri"]) == ("notifications/resources/updated", "memo://a")
            await client.subscribe("memo://b")
            await client.subscribe("memo://b")
            await client.listen("tools")
            await client.unsubscribe("memo://a")
            await client.unsubscribe("memo://never")
        await client.call("sync")
        first, *others = heard(tmp_path, "subscriptions/listen")
        assert [request["params"]["notifications"] for request in (first, *others)] == [
            {"resourceSubscriptions": ["memo://a"]},
            {"resourceSubscriptions": ["memo://a", "memo://b"]},
            {"toolsListChanged": True, "resourceSubscriptions": ["memo://a", "memo://b"]},
            {"toolsListChanged": True, "resourceSubscriptions": ["memo://b"]},
        ]
        # Each new one replaced the one before.
        cancelled = [m["params"]["requestId"] for m in heard(tmp_path, "notifications/cancelled")]
        assert cancelled == [first["id"], *(request["id"] for request in others[:-1])]
        # A new connection is told the same, once more.
        with pytest.raises(Exception, match="Transport closed"):
            await client.call("die")
        await client.call("sync")
        again = heard(tmp_path, "subscriptions/listen")[-1]
        assert again["params"]["notifications"] == others[-1]["params"]["notifications"]
        assert client.generation == 1


async def test_a_refused_subscription_is_not_remembered(tmp_path: Path) -> None:
    command = program(tmp_path, TELLING, stateless=True)
    async with MCPClient.connect_stdio(command) as client:
        with pytest.raises(RpcError):
            await client.subscribe("memo://refused")
        await client.subscribe("memo://a")
    wanted = heard(tmp_path, "subscriptions/listen")[-1]["params"]["notifications"]
    assert wanted == {"resourceSubscriptions": ["memo://a"]}
