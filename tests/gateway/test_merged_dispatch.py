"""Requests at the merged endpoint, each answered by the server that has the item."""

import asyncio

import pytest

from fairlead import RpcError
from fairlead.gateway import Gateway
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.wire import Request
from tests.support.gateway_servers import (
    BOTH,
    LIMIT,
    joining,
    make,
    names,
    serving,
)
from tests.support.single_exchange import exchange


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


@pytest.mark.parametrize(
    ("stateless", "methods"),
    [
        (True, ("initialize", "ping", "logging/setLevel", "resources/subscribe")),
        (False, ("server/discover", "subscriptions/listen")),
    ],
)
async def test_methods_of_the_other_era_are_unknown(
    stateless: bool, methods: tuple[str, ...]
) -> None:
    async with Gateway() as gateway:
        for method in (*methods, "tasks/get", "no/such/method"):
            with pytest.raises(RpcError) as caught:
                await gateway.handler(exchange(method, {}, stateless=stateless))
            assert (caught.value.code, caught.value.message) == (
                -32601,
                f"Method not found: {method}",
            )


async def test_every_request_passes_the_interceptors() -> None:
    seen: list[str] = []

    async def note(exchange: Exchange, proceed: Proceed) -> Answer:
        if isinstance(exchange.message, Request):
            seen.append(exchange.method)
        return await proceed(exchange)

    async with Gateway(interceptors=[note]) as gateway, joining(gateway, "2025-11-25") as client:
        await client.ping()
        await names(client)
    assert seen == ["initialize", "ping", "tools/list"]
