"""What many servers offer, used as if it were one server's."""

import asyncio
import contextlib

import pytest

from fairlead import RpcError
from fairlead.errors import ConfigError
from fairlead.gateway import Gateway, RelaySettings
from fairlead.manager import MCPManager
from tests.support.gateway_servers import (
    BOTH,
    LIMIT,
    Ears,
    joining,
    make,
    names,
    program,
    serving,
    until,
)


async def test_servers_come_and_go_and_clients_of_both_eras_hear_of_it() -> None:
    old, new = Ears(), Ears()
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        serving(make("blue")) as blue,
        Gateway() as gateway,
        joining(gateway, BOTH[0], on_notification=old) as handshake,
        joining(gateway, BOTH[1], on_notification=new) as stateless,
    ):
        await stateless.listen("tools", "resources", "prompts")
        await gateway.connect({"red": {"url": red}})
        for ears in (old, new):
            await ears.hear("notifications/tools/list_changed")
        await until(lambda: gateway.is_ready)
        await gateway.connect({"blue": {"url": blue}})
        for ears in (old, new):
            await ears.hear("notifications/tools/list_changed")
        assert "blue_who" in await names(handshake)
        old.drain(), new.drain()
        await gateway.disconnect("red")
        for ears in (old, new):
            await ears.hear("notifications/tools/list_changed")
        for client in (handshake, stateless):
            assert not [name for name in await names(client) if name.startswith("red")]
            with pytest.raises(RpcError):
                await client.call_tool("red_who", {})
            assert (await client.call("blue_who")).text.startswith("blue")
        # And back again, under the same name.
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        assert (await handshake.call("red_who")).text.startswith("red")


async def test_a_wrong_entry_changes_nothing() -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        with pytest.raises(ConfigError):
            await gateway.connect({"red": {"url": red}, "bad": {"command": 7}})
        assert not gateway.members
        await gateway.connect({"red": {"url": red}})
        with pytest.raises(ConfigError, match="already"):
            await gateway.connect({"red": {"url": red}})
        async with joining(gateway) as client:
            assert (await client.call("red_who")).text.startswith("red")


async def test_disconnecting_one_server_leaves_the_questions_of_another_open() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def on_elicit(question: object) -> dict[str, object]:
        asked.set()
        await go_on.wait()
        return {"action": "accept", "content": {"value": "Ada"}}

    async with asyncio.timeout(LIMIT), serving(make("blue")) as blue, Gateway() as gateway:
        await gateway.connect({"red": program("red"), "blue": {"url": blue}})
        async with joining(gateway, BOTH[1], on_elicit=on_elicit) as client:
            await until(lambda: gateway.is_ready)
            call = asyncio.create_task(client.call("red_ask"))
            await asked.wait()
            await gateway.disconnect("blue")
            go_on.set()
            assert (await call).text.startswith("Ada to red")


async def test_a_server_with_an_odd_name_is_served_all_the_same() -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        await gateway.connect({"a#2": {"url": red}, "b c/d": {"url": red}})
        async with joining(gateway) as client:
            assert {"a_2_who", "b_c_d_who"} <= set(await names(client))
            assert (await client.call("b_c_d_who")).text.startswith("red")


async def test_the_servers_of_somebody_elses_manager_outlive_the_gateway() -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, MCPManager() as manager:
        async with Gateway(manager) as gateway:
            await gateway.connect({"red": {"url": red}})
            async with joining(gateway) as client:
                await until(lambda: gateway.is_ready)
                assert (await client.call("red_who")).text.startswith("red")
        assert manager.get_connected_servers() == ["red"]


@pytest.mark.parametrize("way", ["shared", "per-session"])
async def test_sessions_share_a_process_or_each_have_their_own(way: str) -> None:
    relay = RelaySettings(upstream=way)  # type: ignore[arg-type]
    async with asyncio.timeout(LIMIT), Gateway(relay=relay) as gateway:
        await gateway.connect({"red": program("red")})
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(joining(gateway)) for _ in range(3)]
            await until(lambda: gateway.is_ready)
            pids = {(await client.call("red_who")).text for client in clients}
            assert len(pids) == (1 if way == "shared" else 3)
