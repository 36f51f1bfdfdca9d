"""What many servers offer, used as if it were one server's."""

import asyncio
import contextlib

import pytest

from fairlead import MCPClient, MCPServer, RpcError
from fairlead.errors import ConfigError
from fairlead.gateway import Gateway, RelaySettings, View
from fairlead.manager import MCPManager
from tests.support.gateway_servers import (
    BOTH,
    LIMIT,
    Ears,
    config,
    joining,
    make,
    names,
    program,
    serving,
    until,
)


@pytest.mark.covers("GTW-12")
@pytest.mark.parametrize("version", BOTH)
async def test_each_thing_is_asked_of_the_server_that_has_it(version: str) -> None:
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        serving(make("blue")) as blue,
        Gateway() as gateway,
    ):
        await gateway.connect({"red": {"url": red}, "blue": {"url": blue}})
        async with joining(gateway, version) as client:
            assert {"red_who", "blue_who"} <= set(await names(client))
            assert (await client.call("red_secret")).text == "the secret of red"
            assert (await client.call("blue_secret")).text == "the secret of blue"

            uris = [found["uri"] for found in await client.list_resources()]
            assert {"red://fixed", "blue://fixed", "shared://note"} == set(uris)
            for name in ("red", "blue"):
                read = await client.read_resource(f"{name}://fixed")
                assert read["contents"][0]["text"] == f"fixed of {name}"
                read = await client.read_resource(f"{name}://item/7")
                assert read["contents"][0]["text"] == f"7 of {name}"
            # Both have it: who was there first is asked, and always the same.
            read = await client.read_resource("shared://note")
            assert read["contents"][0]["text"] == "note of red"

            prompt = await client.get_prompt("blue_hello", {"city": "Bonn"})
            assert prompt["messages"][0]["content"]["text"] == "blue greets Bonn"
            found = await client.complete("prompt", "blue_hello", "city", "b")
            assert found.values == ["blue-Aachen", "blue-Bonn"]
            found = await client.complete("resource", "blue://item/{key}", "key", "")
            assert found.values == ["blue-key"]


@pytest.mark.parametrize("version", BOTH)
async def test_what_nobody_has_is_refused_by_the_gateway(version: str) -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        await gateway.connect({"red": {"url": red}})
        async with joining(gateway, version) as client:
            code = -32602 if client.protocol_version == "2026-07-28" else -32002
            for asking, expected in (
                (client.call_tool("who", {}), -32602),  # its own name is not the merged one
                (client.call_tool("blue_who", {}), -32602),
                (client.get_prompt("hello", {"city": "x"}), -32602),
                (client.read_resource("blue://fixed"), code),
                (client.complete("prompt", "hello", "city", ""), -32602),
                (client.complete("resource", "blue://{x}", "x", ""), -32602),
                (client.request("no/such/method"), -32601),
            ):
                with pytest.raises(RpcError) as caught:
                    await asking
                assert caught.value.code == expected
                assert caught.value.data["source"] == "proxy"


async def test_whose_server_is_not_there_hears_why_the_name_is_unknown() -> None:
    views = {"bob": View(servers=("red",))}
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(views=views) as gateway,
    ):
        await gateway.connect({"red": {"url": red}, "gone": {"command": "/nowhere/at-all"}})
        await until(lambda: gateway.is_ready)
        async with serving(gateway, verify_token={"a": "alice", "b": "bob"}.get) as url:
            for token, name, why in (
                ("a", "gone_who", "; gone is not connected"),
                ("a", "red_nothing", ""),
                ("b", "gone_who", ""),  # who does not know that there is such a server
            ):
                who = {"Authorization": f"Bearer {token}"}
                async with MCPClient.connect_http(url, config(), headers=who) as client:
                    with pytest.raises(RpcError) as caught:
                        await client.call_tool(name, {})
                    assert caught.value.message == f"Unknown tool: {name}{why}"
                    with pytest.raises(RpcError) as caught:
                        await client.get_prompt(name, {})
                    assert caught.value.message == f"Unknown prompt: {name}{why}"


async def test_two_templates_that_look_alike_are_completed_by_their_own_servers() -> None:
    def with_documents(name: str) -> MCPServer:
        server = make(name)
        template = f"doc://{{of_{name}}}"
        server.register_resource_template(template, "doc", lambda **_: "x")
        server.completion(template, f"of_{name}")(lambda begun: [name])
        return server

    async with (
        asyncio.timeout(LIMIT),
        serving(with_documents("red")) as red,
        serving(with_documents("blue")) as blue,
        Gateway() as gateway,
    ):
        await gateway.connect({"red": {"url": red}, "blue": {"url": blue}})
        async with joining(gateway) as client:
            for name in ("red", "blue"):
                found = await client.complete("resource", f"doc://{{of_{name}}}", f"of_{name}")
                assert found.values == [name]


@pytest.mark.parametrize("version", BOTH)
async def test_a_client_hears_what_each_server_wants_a_model_to_know(version: str) -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        await gateway.connect({"red": {"url": red}, "blue": program("blue")})
        await until(lambda: gateway.is_ready)
        async with joining(gateway, version) as client:
            assert client.instructions == "blue: how to use blue\n\nred: how to use red"
    async with Gateway(instructions="mine") as gateway, joining(gateway, version) as client:
        assert client.instructions == "mine"


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
