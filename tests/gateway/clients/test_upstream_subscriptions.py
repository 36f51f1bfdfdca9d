"""Updates of resources for subscribed clients, across restarts of the server."""

import asyncio
import contextlib
from typing import Any

import pytest

from fairlead import MCPClient, MCPServer, RpcError
from fairlead.gateway import Gateway, GatewaySettings
from fairlead.manager import MCPManager
from tests.support.gateway_servers import (
    BOTH,
    HANDSHAKE,
    LIMIT,
    STATELESS,
    Ears,
    config,
    joining,
    make,
    program,
    serving,
    until,
)

UPDATED = "notifications/resources/updated"


@pytest.mark.parametrize("upstream", BOTH)
@pytest.mark.parametrize("version", BOTH)
async def test_updates_are_sent_after_a_restart_of_the_server(version: str, upstream: str) -> None:
    ears, deaf = Ears(), Ears()
    async with (
        asyncio.timeout(LIMIT),
        MCPManager(config=config(upstream), on_roots=None) as manager,
        Gateway(manager) as gateway,
    ):
        await gateway.connect({"red": program("red"), "blue": program("blue")})
        await until(lambda: gateway.is_ready)
        async with (
            joining(gateway, version, on_notification=ears) as client,
            joining(gateway, version, on_notification=deaf) as other,
        ):
            for uri in ("red://fixed", "red://item/7", "blue://fixed"):
                await client.subscribe(uri)
                server = uri.partition(":")[0]
                await client.call(f"{server}_touch", {"uri": uri})
                await ears.hear(UPDATED, uri=uri)
            with pytest.raises(RpcError):
                await client.call_tool("red_die", {})
            while True:
                with contextlib.suppress(RpcError):
                    await other.call_tool("red_touch", {"uri": "red://fixed"})
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.2):
                            await ears.hear(UPDATED, uri="red://fixed")
                            break
            await client.unsubscribe("blue://fixed")
            # A client on its own connection has its own subscription, which is not shared.
            shared = 0 if (version, upstream) == (HANDSHAKE, STATELESS) else 2
            await until(lambda: len(gateway.upstream_subscriptions) == shared)
            ears.drain()  # earlier updates, of which one is also sent after a change of connection
            await client.call("blue_touch", {"uri": "blue://fixed"})
            await client.call("red_touch", {"uri": "red://item/7"})
            await ears.hear(UPDATED, uri="red://item/7")
            assert (UPDATED, {"uri": "blue://fixed"}) not in ears.drain()
        assert UPDATED not in [method for method, _ in deaf.drain()]
        await until(lambda: len(gateway.upstream_subscriptions) == 0)


async def test_several_clients_share_one_subscription() -> None:
    server = make("red")
    async with asyncio.timeout(LIMIT), serving(server) as red, Gateway() as gateway:
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        everybody = [Ears() for _ in range(4)]
        async with contextlib.AsyncExitStack() as stack:
            clients: list[MCPClient] = []
            for ears, version in zip(everybody, BOTH * 2, strict=True):
                joined = joining(gateway, version, on_notification=ears)
                clients.append(await stack.enter_async_context(joined))
                await clients[-1].subscribe("red://fixed")
            assert len(gateway.upstream_subscriptions) == 1
            server.resource_updated("red://fixed")
            for ears in everybody:
                await ears.hear(UPDATED, uri="red://fixed")
            await clients[0].close()
            await clients[1].close()
            server.resource_updated("red://fixed")
            for ears in everybody[2:]:
                await ears.hear(UPDATED, uri="red://fixed")
        await until(lambda: len(gateway.upstream_subscriptions) == 0)


async def test_a_refused_subscription_is_an_error() -> None:
    import sys

    from tests.gateway.catalog.test_list_requests import ODD

    odd: dict[str, Any] = {"command": sys.executable, "args": ["-c", ODD, "plain"]}
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"odd": odd})
        await until(lambda: gateway.is_ready)
        async with joining(gateway, HANDSHAKE) as client:
            with pytest.raises(RpcError) as caught:
                await client.subscribe("odd://r")
            assert "refused the subscription" in caught.value.message
        assert len(gateway.upstream_subscriptions) == 0


async def test_a_subscription_made_during_an_outage_applies_after_the_reconnect() -> None:
    ears, settings = Ears(), GatewaySettings(deadline=0.1)
    server = make("red")
    async with asyncio.timeout(LIMIT), Gateway(settings=settings) as gateway:
        async with serving(server) as url:
            await gateway.connect({"red": {"url": url}})
            await until(lambda: gateway.is_ready)
        port = int(url.rpartition(":")[2].partition("/")[0])
        async with joining(gateway, on_notification=ears) as client:
            await client.subscribe("red://fixed")
            async with serving(server, port=port):
                await gateway.upstreams["red"].reconnect()
                await until(lambda: gateway.upstream_subscriptions._asked)
                server.resource_updated("red://fixed")
                await ears.hear(UPDATED, uri="red://fixed")


@pytest.mark.parametrize("upstream", BOTH)
@pytest.mark.parametrize("version", BOTH)
async def test_a_listener_at_the_endpoint_of_a_server_gets_updates_after_a_restart(
    version: str, upstream: str
) -> None:
    ears = Ears()
    async with (
        asyncio.timeout(LIMIT),
        MCPManager(config=config(upstream), on_roots=None) as manager,
        Gateway(manager) as gateway,
    ):
        await gateway.connect({"red": program("red")})
        await until(lambda: gateway.is_ready)
        async with (
            serving(gateway) as url,
            MCPClient.connect_http(f"{url}/red", config(version), on_notification=ears) as client,
            joining(gateway, version) as other,  # this client shares the process
        ):
            await client.subscribe("red://fixed")
            await other.call("red_touch", {"uri": "red://fixed"})
            await ears.hear(UPDATED, uri="red://fixed")
            process = (await other.call("red_who")).text
            with pytest.raises(RpcError):
                await other.call_tool("red_die", {})
            renewed = process
            while renewed == process:
                with contextlib.suppress(RpcError):
                    renewed = (await other.call("red_who")).text
            # Drop the update that the restart causes; wait for one caused by a change.
            ears.drain()
            heard = False
            while not heard:
                await other.call("red_touch", {"uri": "red://fixed"})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await ears.hear(UPDATED, uri="red://fixed")
                        heard = True


class Holding:
    """An interceptor that holds subscription requests until the test releases them."""

    def __init__(self) -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, exchange: Any, proceed: Any) -> Any:
        if exchange.method in ("resources/subscribe", "subscriptions/listen"):
            if exchange.method == "subscriptions/listen" and b"red://fixed" not in bytes(
                exchange.message.params
            ):
                return await proceed(exchange)
            self.asked.set()
            await self.go_on.wait()
        return await proceed(exchange)


def held(name: str) -> tuple[MCPServer, Holding]:
    holding = Holding()
    server = MCPServer(name, interceptors=[holding], rate_limit_rate=0)
    server.resource(f"{name}://fixed")(lambda: "x")
    return server, holding


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_cancelled_subscription_is_removed(version: str) -> None:
    server, holding = held("red")
    async with (
        asyncio.timeout(LIMIT),
        serving(server) as red,
        MCPManager(config=config("2025-11-25"), on_roots=None) as manager,
        Gateway(manager, deadline=60) as gateway,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway, version) as client:
            asking = (
                ("resources/subscribe", {"uri": "red://fixed"})
                if version == "2025-11-25"
                else (
                    "subscriptions/listen",
                    {"notifications": {"resourceSubscriptions": ["red://fixed"]}},
                )
            )
            call = asyncio.create_task(client.transport.peer.request(*asking))
            await holding.asked.wait()
            assert len(gateway.upstream_subscriptions) == 1
            call.cancel()
            await until(lambda: len(gateway.upstream_subscriptions) == 0)
            holding.go_on.set()
            await until(lambda: not gateway.upstream_subscriptions._asking)
            assert not gateway.upstream_subscriptions._asked


async def test_concurrent_subscriptions_get_the_same_refusal() -> None:
    server, holding = held("red")

    class Refusing:
        async def __call__(self, exchange: Any, proceed: Any) -> Any:
            if exchange.method == "resources/subscribe":
                await holding(exchange, lambda _: asyncio.sleep(0))
                raise RpcError(-32601, "not here")
            return await proceed(exchange)

    server = MCPServer("red", interceptors=[Refusing()], rate_limit_rate=0)
    server.resource("red://fixed")(lambda: "x")
    async with (
        asyncio.timeout(LIMIT),
        serving(server) as red,
        MCPManager(config=config("2025-11-25"), on_roots=None) as manager,
        Gateway(manager, deadline=60) as gateway,
        joining(gateway) as one,
        joining(gateway) as other,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        both = [asyncio.create_task(one.subscribe("red://fixed"))]
        await holding.asked.wait()
        both.append(asyncio.create_task(other.subscribe("red://fixed")))
        await until(
            lambda: [len(who) for who in gateway.upstream_subscriptions._watchers.values()] == [2]
        )
        holding.go_on.set()
        for call in both:
            with pytest.raises(RpcError, match="refused the subscription"):
                await call
        assert len(gateway.upstream_subscriptions) == 0
