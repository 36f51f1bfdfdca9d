"""Tests of servers in the same process, and of client interceptors."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from fairlead import Context, MCPClient, MCPClientConfig, MCPServer, RpcError
from fairlead.errors import ChannelClosed
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.envelope import Direction
from fairlead.wire import Request


def notes() -> MCPServer:
    server = MCPServer("notes")

    @server.tool()
    async def echo(text: str) -> str:
        return text

    @server.tool()
    async def count(to: int, ctx: Context) -> str:
        for step in range(to):
            await ctx.progress(step)
        return "done"

    return server


@pytest.mark.covers("CLT-01", "CLT-02")
@pytest.mark.parametrize("version", ["auto", "latest"])
async def test_a_server_object_is_called_like_a_remote_server(version: str) -> None:
    config = MCPClientConfig(protocol_version=version)
    async with MCPClient.connect_inprocess(notes(), config) as client:
        assert (await client.call("echo", {"text": "hi"})).text == "hi"
        heard: list[float] = []
        await client.call("count", {"to": 3}, on_progress=lambda done, *_: heard.append(done))
        assert heard == [0, 1, 2]
    with pytest.raises(ChannelClosed):
        await client.call("echo", {"text": "hi"})


async def test_closing_the_client_closes_the_server_side_of_the_connection() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()
    server = MCPServer("slow")

    @server.tool()
    async def wait() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    client = await MCPClient.connect_inprocess(server)
    call = asyncio.ensure_future(client.call("wait"))
    await started.wait()
    began = time.monotonic()
    await client.close()
    assert stopped.is_set()
    assert time.monotonic() - began < 1
    with pytest.raises(ChannelClosed):
        await call


async def test_a_lost_connection_to_a_server_object_is_replaced() -> None:
    config = MCPClientConfig(auto_reconnect=True, retry_delay=0.01)
    async with MCPClient.connect_inprocess(notes(), config) as client:
        await client.transport.close()
        assert (await client.call("echo", {"text": "hi"})).text == "hi"
        assert client.generation == 1


async def test_the_lifespan_of_a_server_object_is_open_while_clients_are_connected() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(server: MCPServer) -> AsyncIterator[str]:
        events.append("open")
        yield "state"
        events.append("closed")

    server = MCPServer("s", lifespan=lifespan)

    @server.tool()
    def state(ctx: Context) -> str:
        return str(ctx.state)

    outer = MCPServer("outer")
    outer.mount(server)
    async with MCPClient.connect(server) as first:
        second = await MCPClient.connect(outer)
        assert (await first.call("state")).text == "state"
        assert (await second.call("state")).text == "state"
        assert events == ["open"]
        await asyncio.create_task(second.close())  # any task may close a client
        await second.close()
    assert (events, server.state) == (["open", "closed"], None)
    async with server.running(), MCPClient.connect(server) as client:
        assert (await client.call("state")).text == "state"
    assert events == ["open", "closed"] * 2


async def test_an_exception_of_a_lifespan_is_raised_by_connecting() -> None:
    @asynccontextmanager
    async def lifespan(server: MCPServer) -> AsyncIterator[None]:
        raise KeyError("no database")
        yield

    server = MCPServer("s", lifespan=lifespan)
    for _ in range(2):
        with pytest.raises(KeyError, match="no database"):
            await MCPClient.connect(server)


@pytest.mark.parametrize("version", ["auto", "latest"])
async def test_interceptors_are_called_around_each_request(version: str) -> None:
    seen: list[Any] = []

    async def outer(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.direction is Direction.SERVER_TO_CLIENT or exchange.target is None:
            return await proceed(exchange)
        seen.append((exchange.method, exchange.target))
        if exchange.target == "secret":
            raise RpcError(-32602, "not from here")
        answer = await proceed(exchange)
        seen.append(exchange.request_id)
        return answer

    async def inner(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.target != "echo":
            return await proceed(exchange)
        request = exchange.message
        assert isinstance(request, Request)
        params = Raw(b'{"name":"echo","arguments":{"text":"changed"}}')
        exchange.message = Request(request.id, request.method, params)
        return await proceed(exchange)

    config = MCPClientConfig(protocol_version=version)
    async with MCPClient.connect_inprocess(notes(), config, interceptors=[outer, inner]) as client:
        ids: list[Any] = []
        result = await client.call_tool("echo", {"text": "hi"}, on_sent=ids.append)
        assert result["content"][0]["text"] == "changed"
        heard: list[float] = []
        await client.call("count", {"to": 2}, on_progress=lambda done, *_: heard.append(done))
        assert heard == [0, 1]
        with pytest.raises(RpcError, match="not from here"):
            await client.call("secret")
        assert seen[:2] == [("tools/call", "echo"), ids[0]]
        assert seen[-1] == ("tools/call", "secret")
