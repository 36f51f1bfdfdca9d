"""Tests of the lifespan of a server."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.client import MCPClient
from fairlead.server.lifespan import Lifespan
from fairlead.transport.memory import memory_pair

log: list[str] = []


@asynccontextmanager
async def database(server: MCPServer) -> AsyncIterator[dict[str, str]]:
    log.append(f"open {server.name}")
    async with asyncio.TaskGroup():  # a task group must be exited by the task that entered it
        yield {"db": server.name}
    log.append(f"close {server.name}")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    log.clear()


def client_of(server: MCPServer, servings: list[asyncio.Task[None]]) -> Any:
    left, right = memory_pair()
    servings.append(asyncio.create_task(server.serve(right)))

    async def open_channel() -> Any:
        return left

    return MCPClient.connect_channel(open_channel)


async def test_a_lifespan_opens_before_the_first_connection_and_closes_after_the_last() -> None:
    server = MCPServer("s", lifespan=database)

    @server.tool()
    async def which() -> str:
        return str(server.state["db"])

    servings: list[asyncio.Task[None]] = []
    assert server.state is None
    async with client_of(server, servings) as one:
        async with client_of(server, servings) as two:
            assert (await two.call_tool("which"))["content"][0]["text"] == "s"
            assert log == ["open s"]
        await servings[1]
        assert (await one.call_tool("which"))["content"][0]["text"] == "s"
        assert log == ["open s"]
    await servings[0]
    assert log == ["open s", "close s"]
    assert server.state is None


async def test_lifespans_of_mounted_servers_are_also_opened() -> None:
    inner, outer = MCPServer("inner", lifespan=database), MCPServer("outer", lifespan=database)
    outer.mount(inner, "i")
    async with outer.running() as state:
        assert state == {"db": "outer"}
        assert inner.state == {"db": "inner"}
        async with outer.running():
            pass
        assert log == ["open inner", "open outer"]
    assert log == ["open inner", "open outer", "close outer", "close inner"]
    async with outer.running():  # the lifespan can be opened again
        assert inner.state == {"db": "inner"}
    async with MCPServer("none").running() as nothing:
        assert nothing is None


async def test_an_exception_while_a_lifespan_opens_is_raised_by_the_server() -> None:
    @asynccontextmanager
    async def broken(server: MCPServer) -> AsyncIterator[None]:
        if server.name == "s":
            raise ConnectionError("no database")
        yield

    _, right = memory_pair()
    with pytest.raises(ConnectionError, match="no database"):
        await MCPServer("s", lifespan=broken).serve(right)


async def test_an_exception_while_closing_a_lifespan_is_raised() -> None:
    @asynccontextmanager
    async def leaking(server: MCPServer) -> AsyncIterator[None]:
        yield
        raise RuntimeError("cannot close")

    with pytest.raises(RuntimeError, match="cannot close"):
        async with MCPServer("s", lifespan=leaking).running():
            pass


async def test_a_failed_lifespan_can_be_opened_again() -> None:
    fails = [True, False]

    @asynccontextmanager
    async def moody(server: Any) -> AsyncIterator[str]:
        if fails.pop(0):
            raise ConnectionError("no database")
        yield "open"

    lifespan = Lifespan(moody, None)
    with pytest.raises(ConnectionError):
        await lifespan.__aenter__()
    assert lifespan.state is None
    async with lifespan as state:
        assert state == lifespan.state == "open"
    assert lifespan.state is None


async def test_a_cancelled_user_does_not_close_the_lifespan_for_other_users() -> None:
    gate, closed = asyncio.Event(), list[str]()

    @asynccontextmanager
    async def slow(server: Any) -> AsyncIterator[str]:
        await gate.wait()
        yield "open"
        closed.append("closed")

    lifespan = Lifespan(slow, None)
    first, second = (asyncio.create_task(lifespan.__aenter__()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.set()
    assert await second == "open"
    assert closed == []
    await lifespan.__aexit__(None, None, None)
    assert closed == ["closed"]


async def test_a_lifespan_closes_if_its_only_user_is_cancelled_during_opening() -> None:
    gate, closed = asyncio.Event(), list[str]()

    @asynccontextmanager
    async def slow(server: Any) -> AsyncIterator[None]:
        await gate.wait()
        yield
        closed.append("closed")

    lifespan = Lifespan(slow, None)
    only = asyncio.create_task(lifespan.__aenter__())
    await asyncio.sleep(0)
    only.cancel()
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await only
    assert closed == ["closed"]


async def test_a_server_without_a_lifespan_has_no_state() -> None:
    lifespan = Lifespan(None, None)
    async with lifespan as state:
        assert state is None


async def test_the_exception_of_a_lifespan_without_users_is_not_logged_by_asyncio(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = asyncio.Event()

    @asynccontextmanager
    async def fails(server: Any) -> AsyncIterator[None]:
        await gate.wait()
        raise ConnectionError("no database")
        yield

    async def leave() -> None:
        lifespan = Lifespan(fails, None)
        only = asyncio.create_task(lifespan.__aenter__())
        await asyncio.sleep(0)
        only.cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.wait((only,))
        assert only.cancelled()

    await leave()
    gc.collect()
    assert "never retrieved" not in caplog.text
