"""Tests of the asynchronous iterator over changes, in both eras."""

import asyncio

import pytest

from fairlead import MCPClient, MCPClientConfig, MCPServer, RpcError
from fairlead.client.connection.change_stream import Change
from fairlead.interceptor import Answer, Exchange, Interceptor, Proceed

LIMIT = 10.0


def notes(*interceptors: Interceptor) -> MCPServer:
    server = MCPServer("notes", rate_limit_rate=0, interceptors=interceptors)
    for name in ("a", "b"):
        server.resource(f"note://{name}", name=name)(lambda: "text")
    server.tool(name="extra")(lambda: "x")
    return server


@pytest.fixture(params=["2025-11-25", "auto"])
def config(request: pytest.FixtureRequest) -> MCPClientConfig:
    return MCPClientConfig(protocol_version=request.param)


@pytest.mark.covers("CLT-07")
async def test_a_change_stream_returns_only_changes_of_the_watched_items(
    config: MCPClientConfig,
) -> None:
    server = notes()
    async with asyncio.timeout(LIMIT), MCPClient.connect_inprocess(server, config) as client:
        async with client.changes("tools", uris=["note://a"]) as changes:
            server.resource_updated("note://b")  # a resource without a subscription
            server.resource_updated("note://a")
            assert await anext(changes) == Change("resource", "note://a")
            server.remove_tool("extra")
            server.resource_updated("note://a")
            found = {await anext(changes), await anext(changes)}
            assert found == {Change("tools"), Change("resource", "note://a")}


async def test_two_change_streams_for_the_same_resource_are_independent(
    config: MCPClientConfig,
) -> None:
    server = notes()
    async with asyncio.timeout(LIMIT), MCPClient.connect_inprocess(server, config) as client:
        async with client.changes(uris=["note://a"]) as longer:
            async with client.changes(uris=["note://a", "note://b"]) as shorter:
                server.resource_updated("note://b")
                assert (await anext(shorter)).uri == "note://b"
            server.resource_updated("note://a")
            assert (await anext(longer)).uri == "note://a"
        async with client.changes(uris=["note://b"]) as later:
            server.resource_updated("note://a")  # the subscription has ended
            server.resource_updated("note://b")
            assert (await anext(later)).uri == "note://b"


async def test_iterating_over_changes_ends_when_the_client_is_closed(
    config: MCPClientConfig,
) -> None:
    server = notes()
    client = await MCPClient.connect_inprocess(server, config)
    watch = client.changes("tools")
    async with asyncio.timeout(LIMIT), watch as changes:

        async def follow() -> list[Change]:
            return [change async for change in changes]

        following = asyncio.create_task(follow())
        await asyncio.sleep(0)
        await client.close()
        assert await following == []


async def test_a_change_stream_reports_all_watched_items_after_a_reconnect() -> None:
    server = notes()
    config = MCPClientConfig(protocol_version="2025-11-25", auto_reconnect=True, retry_delay=0.01)
    async with asyncio.timeout(LIMIT), MCPClient.connect_inprocess(server, config) as client:
        async with client.changes("tools", uris=["note://a"]) as changes:
            await client.transport.peer.channel.close()
            found = {await anext(changes), await anext(changes)}
            assert found == {Change("tools"), Change("resource", "note://a")}
            server.resource_updated("note://a")
            assert await anext(changes) == Change("resource", "note://a")


async def test_only_closing_the_last_stream_of_a_resource_unsubscribes() -> None:
    asked: list[tuple[str, str]] = []

    async def listen(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method.endswith("subscribe"):
            asked.append((exchange.method.partition("/")[2], exchange.head.uri))
        return await proceed(exchange)

    config = MCPClientConfig(protocol_version="2025-11-25")
    async with asyncio.timeout(LIMIT), MCPClient.connect_inprocess(notes(listen), config) as client:
        first, second = client.changes(uris=["note://a"]), client.changes(uris=["note://a"])
        async with first:
            await second.__aenter__()
        assert asked == [("subscribe", "note://a")]
        await second.__aexit__(None, None, None)
        assert asked == [("subscribe", "note://a"), ("unsubscribe", "note://a")]


async def test_a_refused_subscription_leaves_no_change_stream() -> None:
    async def refuse(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "resources/subscribe":
            raise RpcError(-32002, "no such resource")
        return await proceed(exchange)

    config = MCPClientConfig(protocol_version="2025-11-25")
    async with asyncio.timeout(LIMIT), MCPClient.connect_inprocess(notes(refuse), config) as client:
        with pytest.raises(RpcError, match="no such resource"):
            async with client.changes(uris=["note://x"]):
                raise AssertionError
        assert client._watches == []
