"""Interceptors of servers and clients, which must process every message."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead import Context, MCPClient, MCPServer
from fairlead.errors import RpcError
from fairlead.interceptor import Answer, Exchange, Interceptor, Proceed
from fairlead.protocol.envelope import Direction
from fairlead.recording.replay import TapeServer
from fairlead.recording.tape import TapeWriter, decode_entry, read_tape
from fairlead.recording.tape.tape_interceptor import Recorder
from fairlead.wire import Notification
from tests.support.gateway_servers import (
    BOTH,
    HANDSHAKE,
    LIMIT,
    STATELESS,
    Ears,
    config,
    serving,
    until,
)

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
PROGRESS, SAID = "notifications/progress", "notifications/message"
CANCELLED, GROWN = "notifications/cancelled", "notifications/tools/list_changed"


class Watch:
    """An interceptor that records exchanges with their related request, and may reject a method."""

    def __init__(self, refuse: str = "") -> None:
        self.seen: list[tuple[Direction, str]] = []
        self.related: dict[str, Any] = {}
        self.answers: dict[str, Any] = {}
        self._refuse = refuse

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        self.seen.append((exchange.direction, exchange.method))
        self.related[exchange.method] = exchange.related
        if exchange.method == self._refuse:
            raise RpcError(-32600, "not through here")
        answer = await proceed(exchange)
        self.answers[exchange.method] = None if answer is None else msgspec.json.decode(answer)
        return answer


class Stage:
    """A server with several tools and the events that they set."""

    def __init__(self, *interceptors: Interceptor) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        self.server = server = MCPServer("stage", rate_limit_rate=0, interceptors=interceptors)

        @server.tool()
        async def count(ctx: Context, to: int) -> str:
            for number in range(to):
                await ctx.progress(number + 1, to)
            await ctx.info("counted")
            return "done"

        @server.tool()
        async def folders(ctx: Context) -> str:
            self.begun.set()
            try:
                return " ".join(root["uri"] for root in await ctx.roots())
            finally:
                self.ended.set()

        @server.tool()
        async def wait() -> str:
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
            return "never"

        @server.tool()
        async def grow(name: str) -> str:
            server.tool(name=name)(lambda: name)
            return "grown"


@contextlib.asynccontextmanager
async def talking(
    stage: Stage, version: str, over: str, *interceptors: Interceptor, **callbacks: Any
) -> AsyncIterator[MCPClient]:
    """Connect a client to the server, in this process or over HTTP."""
    options: dict[str, Any] = {**callbacks, "interceptors": interceptors}
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(LIMIT))
        if over == "memory":
            joining = MCPClient.connect_inprocess(stage.server, config(version), **options)
        else:
            url = await stack.enter_async_context(serving(stage.server))
            joining = MCPClient.connect_http(url, config(version), **options)
        yield await stack.enter_async_context(joining)


EVERYWHERE = [(version, over) for version in BOTH for over in ("memory", "http")]


@pytest.mark.covers("GTW-06")
@pytest.mark.parametrize(("version", "over"), EVERYWHERE)
async def test_progress_and_log_messages_pass_the_interceptors_of_server_and_client(
    version: str, over: str
) -> None:
    here, there, heard, logs = Watch(), Watch(), [], []
    stage = Stage(there)
    async with talking(
        stage, version, over, here, on_log=lambda level, data, _: logs.append(data)
    ) as client:
        await client.set_log_level("info")
        ids: list[Any] = []
        done = await client.call_tool(
            "count", {"to": 3}, on_progress=lambda n, *_: heard.append(n), on_sent=ids.append
        )
        assert done["content"][0]["text"] == "done"
        assert heard == [1, 2, 3]
        await until(lambda: logs)
    for watch in (here, there):
        assert watch.seen.count((DOWN, PROGRESS)) == 3
        assert watch.seen.count((DOWN, SAID)) == 1
        assert watch.related[PROGRESS] == ids[0]
        assert watch.answers["tools/call"]["content"] == done["content"]
        assert (UP, "server/discover" if version == STATELESS else "initialize") in watch.seen
        assert ((UP, "notifications/initialized") in watch.seen) is (version == HANDSHAKE)
    assert logs == ["counted"]


@pytest.mark.parametrize("over", ["memory", "http"])
async def test_requests_from_a_server_pass_the_interceptors_of_server_and_client(over: str) -> None:
    here, there = Watch(), Watch()
    stage = Stage(there)
    roots = [{"uri": "file:///here"}]

    async def folders() -> list[dict[str, str]]:
        return roots

    async with talking(stage, HANDSHAKE, over, here, on_roots=folders) as client:
        assert (await client.call("folders")).text == "file:///here"
        await client.roots_changed()
        await until(lambda: (UP, "notifications/roots/list_changed") in there.seen)
    assert (UP, "notifications/roots/list_changed") in here.seen
    for watch in (here, there):
        assert (DOWN, "roots/list") in watch.seen
        assert watch.answers["roots/list"] == {"roots": roots}


@pytest.mark.parametrize(("version", "over"), EVERYWHERE)
async def test_change_notifications_pass_the_interceptors_of_server_and_client(
    version: str, over: str
) -> None:
    here, there, ears = Watch(), Watch(), Ears()
    stage = Stage(there)
    async with talking(stage, version, over, here, on_notification=ears) as client:
        await client.listen("tools")
        await client.call("grow", {"name": "more"})
        await ears.hear(GROWN)
    assert (DOWN, GROWN) in here.seen
    assert (DOWN, GROWN) in there.seen
    if version == STATELESS:
        for watch in (here, there):
            assert (UP, "subscriptions/listen") in watch.seen
            assert (DOWN, "notifications/subscriptions/acknowledged") in watch.seen


@pytest.mark.parametrize(
    ("version", "over"), [(HANDSHAKE, "memory"), (STATELESS, "memory"), (HANDSHAKE, "http")]
)
async def test_cancellations_pass_the_interceptors_of_server_and_client(
    version: str, over: str
) -> None:
    here, there = Watch(), Watch()
    stage = Stage(there)
    async with talking(stage, version, over, here) as client:
        call = asyncio.ensure_future(client.call("wait"))
        await stage.begun.wait()
        call.cancel()
        await stage.ended.wait()
    assert here.seen.count((UP, CANCELLED)) == 1
    assert there.seen.count((UP, CANCELLED)) == 1


@pytest.mark.parametrize("over", ["memory", "http"])
async def test_cancelled_server_requests_pass_the_interceptors_of_server_and_client(
    over: str,
) -> None:
    here, there, asked, ended = Watch(), Watch(), asyncio.Event(), asyncio.Event()
    stage = Stage(there)

    async def folders() -> list[dict[str, str]]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return []

    async with talking(stage, HANDSHAKE, over, here, on_roots=folders) as client:
        call = asyncio.ensure_future(client.call("folders"))
        await asked.wait()
        call.cancel()
        await ended.wait()
    for watch in (here, there):
        assert [one for one in watch.seen if one[1] == CANCELLED] == [
            (UP, CANCELLED),
            (DOWN, CANCELLED),
        ]


@pytest.mark.parametrize("where", ["server", "client"])
@pytest.mark.parametrize(("version", "over"), EVERYWHERE)
async def test_rejected_notifications_are_dropped_and_changed_ones_are_forwarded(
    version: str, over: str, where: str
) -> None:
    async def change(exchange: Exchange, proceed: Proceed) -> Answer:
        message = exchange.message
        if message.method == SAID and isinstance(message.params, Raw):
            said = {**msgspec.json.decode(message.params), "data": "something else"}
            exchange.message = Notification(SAID, Raw(msgspec.json.encode(said)))
        return await proceed(exchange)

    around: list[Interceptor] = [Watch(refuse=PROGRESS), change]
    logs: list[Any] = []
    heard: list[float] = []
    stage = Stage(*(around if where == "server" else []))
    async with talking(
        stage,
        version,
        over,
        *(around if where == "client" else []),
        on_log=lambda level, data, _: logs.append(data),
    ) as client:
        await client.set_log_level("info")
        await client.call("count", {"to": 2}, on_progress=lambda n, *_: heard.append(n))
        await until(lambda: logs)
    assert (heard, logs) == ([], ["something else"])


@pytest.mark.parametrize("where", ["server", "client"])
@pytest.mark.parametrize("version", BOTH)
async def test_slow_interceptors_delay_notifications_without_reordering_them(
    version: str, where: str
) -> None:
    pauses = iter([3, 0, 2, 0, 1])

    async def slow(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == PROGRESS:
            for _ in range(10 * next(pauses)):
                await asyncio.sleep(0)
        return await proceed(exchange)

    heard: list[float] = []

    async def hear(number: float, *_: Any) -> None:
        await asyncio.sleep(0)
        heard.append(number)

    stage = Stage(*([slow] if where == "server" else []))
    ours = [slow] if where == "client" else []
    async with talking(stage, version, "memory", *ours) as client:
        await client.call("count", {"to": 5}, on_progress=hear)
        assert heard == [1, 2, 3, 4, 5]  # all progress notifications arrive before the result


async def test_an_interceptor_may_send_requests_while_it_handles_a_notification() -> None:
    found: list[str] = []
    client: MCPClient

    async def look(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == GROWN:
            found.extend(tool["name"] for tool in await client.list_tools(cache=False))
        return await proceed(exchange)

    ears = Ears()
    async with talking(Stage(), HANDSHAKE, "memory", look, on_notification=ears) as client:
        await client.call("grow", {"name": "more"})
        await ears.hear(GROWN)
    assert "more" in found


async def test_an_interceptor_that_fails_on_a_notification_does_not_end_the_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(exchange: Exchange, proceed: Proceed) -> Answer:
        if isinstance(exchange.message, Notification) and exchange.method == PROGRESS:
            raise ZeroDivisionError("oh")
        return await proceed(exchange)

    heard: list[float] = []
    async with talking(Stage(fail), STATELESS, "memory", fail) as client:
        hear = {"on_progress": lambda n, *_: heard.append(n)}
        assert (await client.call("count", {"to": 2}, **hear)).text == "done"
    assert heard == []
    assert "an interceptor failed; notifications/progress was not sent" in caplog.text


async def test_a_notification_without_a_session_passes_the_interceptors_of_a_server() -> None:
    from aiohttp import ClientSession

    watch = Watch()
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "0"},
    }
    note = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": meta}}
    headers = {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "notifications/x",
        "accept": "application/json, text/event-stream",
    }
    async with (
        asyncio.timeout(LIMIT),
        serving(Stage(watch).server) as url,
        ClientSession() as http,
    ):
        async with http.post(url, json=note, headers=headers) as response:
            assert response.status == 202, await response.text()
        await until(lambda: watch.seen == [(UP, "notifications/x")])


async def test_interceptors_of_a_mounted_server_process_notifications_from_its_tools() -> None:
    inner, outer, heard = Watch(), Watch(), []
    whole = MCPServer("whole", rate_limit_rate=0, interceptors=[outer])
    whole.mount(Stage(inner).server, "part")
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_inprocess(whole, config(HANDSHAKE)) as client,
    ):
        await client.call("part_count", {"to": 2}, on_progress=lambda n, *_: heard.append(n))
    assert heard == [1, 2]
    assert inner.seen.count((DOWN, PROGRESS)) == outer.seen.count((DOWN, PROGRESS)) == 2


@pytest.mark.parametrize("where", ["server", "client"])
@pytest.mark.parametrize("version", BOTH)
async def test_a_tape_of_a_server_or_client_can_be_replayed(
    tmp_path: Path, version: str, where: str
) -> None:
    tape = TapeWriter(tmp_path / "one")
    around: list[Interceptor] = [Recorder(tape)]
    stage = Stage(*(around if where == "server" else []))
    ours = around if where == "client" else []
    async with talking(stage, version, "memory", *ours) as client:
        both = await asyncio.gather(
            *(client.call("count", {"to": to}, on_progress=lambda *_: None) for to in (1, 2))
        )
        call = asyncio.ensure_future(client.call("wait"))
        await stage.begun.wait()
        call.cancel()
        await stage.ended.wait()
    tape.close()
    entries = read_tape(tmp_path / "one")
    messages = [decode_entry(entry) for entry in entries]
    cancelled = [one for one in messages if one.get("method") == CANCELLED]
    calls = [one["id"] for one in messages if one.get("method") == "tools/call"]
    assert len(calls) == 3
    assert [one["params"]["requestId"] for one in cancelled] == [calls[2]]
    assert all(entry.session for entry in entries)

    heard: list[float] = []
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_inprocess(TapeServer(tmp_path / "one"), config(version)) as client,
    ):
        again = await client.call("count", {"to": 2}, on_progress=lambda n, *_: heard.append(n))
    assert again.text == both[1].text
    assert heard == [1, 2]
