"""A server over HTTP that forgot our session: what was asked for holds, and what was missed too."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead import Context, MCPClient, MCPClientConfig, MCPServer
from fairlead.errors import (
    HttpError,
    RpcError,
)
from tests.support.scripted_http_server import (
    Call,
    Host,
    connected,
    handshake_server,
    progress,
    raw_server,
)

LIMIT = 10.0
NOTE = "note://one"


def make() -> MCPServer:
    server = MCPServer("notes", rate_limit_rate=0)

    @server.resource(NOTE)
    async def one() -> str:
        return "one"

    @server.tool()
    async def touch() -> str:
        server.resource_updated(NOTE)
        return "touched"

    @server.tool()
    async def speak(ctx: Context) -> str:
        await ctx.debug("too little")
        await ctx.warning("enough")
        return "spoken"

    return server


class Place:
    """A server that can be started anew at its port, knowing nothing of its sessions."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> str:
        await self.stop()
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(
            make().run_http(port=self._port, started=ready.set_result)
        )
        await asyncio.wait({ready, self._running}, return_when=asyncio.FIRST_COMPLETED)
        return ready.result()

    async def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.wait((running,))


@contextlib.asynccontextmanager
async def scene(**callbacks: Any) -> AsyncIterator[tuple[Place, MCPClient]]:
    place = Place()
    config = MCPClientConfig(protocol_version="2025-11-25", timeout_seconds=LIMIT)
    try:
        url = await place.start()
        async with (
            asyncio.timeout(LIMIT * 2),
            MCPClient.connect_http(url, config, **callbacks) as client,
        ):
            yield place, client
    finally:
        await place.stop()


async def test_subscriptions_and_log_level_survive_a_new_session() -> None:
    told: asyncio.Queue[Any] = asyncio.Queue()
    logged: list[Any] = []

    def hear(method: str, params: dict[str, Any]) -> None:
        if method == "notifications/resources/updated":
            told.put_nowait(params["uri"])

    async with scene(on_notification=hear, on_log=lambda *said: logged.append(said)) as (
        place,
        client,
    ):
        await client.subscribe(NOTE)
        await client.set_log_level("warning")
        for _ in range(3):
            await place.start()
            await client.call_tool("touch")
            assert await told.get() == NOTE
        await client.call_tool("speak")
        assert "enough" in str(logged)
        assert "too little" not in str(logged)


async def test_who_follows_changes_looks_again_after_a_new_session() -> None:
    async with scene() as (place, client), client.changes(uris=[NOTE]) as changes:
        await place.start()  # nobody could tell what changed meanwhile
        await client.call_tool("speak")
        change = await anext(aiter(changes))
        assert change.uri == NOTE


@pytest.mark.covers("HTT-08")
async def test_a_forgotten_session_is_renewed_once_for_all() -> None:
    sessions: list[str] = []

    async def handle(call: Call) -> None:
        if call.rpc == "initialize":
            sessions.append(f"s{len(sessions)}")
            result = {"protocolVersion": "2025-06-18", "capabilities": {}}
            await call.result(result, Mcp_Session_Id=sessions[-1])
        elif call.rpc == "GET":
            await call.answer(405)
        elif call.headers.get("mcp-session-id") != sessions[-1]:
            error = {"code": -32600, "message": "Session not found"}
            await call.json({"jsonrpc": "2.0", "id": None, "error": error}, 404)
        elif "id" in call.message:
            await call.result({"n": call.message["id"]})
        else:
            await call.accept()

    async with raw_server(handle) as server, connected(server.url) as (peer, channel):
        renewals: list[bool] = []
        channel.on_renewed = lambda: renewals.append(True)
        await peer.request("logging/setLevel", {"level": "info"})
        await peer.request("resources/subscribe", {"uri": "a:1"})
        await peer.request("resources/subscribe", {"uri": "a:2"})
        await peer.request("resources/unsubscribe", {"uri": "a:1"})
        before = len(server.calls)
        sessions.append("another")
        results = await asyncio.gather(*(peer.request("tools/list") for _ in range(5)))
        assert [json.loads(bytes(r))["n"] for r in results] == [6, 7, 8, 9, 10]
        assert renewals == [True]
        assert len(server.of("initialize")) == 2
        again = server.of("initialize")[1]
        assert "mcp-session-id" not in again.headers
        assert again.message["params"] == server.of("initialize")[0].message["params"]
        restored = [
            (call.rpc, call.message.get("params"))
            for call in server.calls[before:]
            if call.rpc not in ("tools/list", "initialize", "GET")
        ]
        assert restored == [
            ("notifications/initialized", None),
            ("logging/setLevel", {"level": "info"}),
            ("resources/subscribe", {"uri": "a:2"}),
        ]
        assert channel.session_id == "s2"


@pytest.mark.covers("HTT-08")
async def test_a_second_404_is_final() -> None:
    async def rest(call: Call) -> None:
        await call.answer(404, "who?")

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        # The same id again would look like a session that somebody else has renewed.
        with pytest.raises(HttpError, match="HTTP 404: who\\?"):
            await peer.request("tools/list")
        assert len(server.of("tools/list")) == 2


async def test_a_404_that_speaks_of_the_method_is_an_answer() -> None:
    async def rest(call: Call) -> None:
        error = {"code": -32601, "message": "no such method"}
        await call.json({"jsonrpc": "2.0", "id": call.message["id"], "error": error}, 404)

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        with pytest.raises(RpcError, match="no such method"):
            await peer.request("tools/list")
        assert len(server.of("initialize")) == 1


async def test_a_server_that_gives_no_new_session_is_reported() -> None:
    refuse = False

    async def rest(call: Call) -> None:
        await call.answer(404, "who?")

    async def handle(call: Call) -> None:
        if call.rpc == "initialize" and refuse:
            await call.answer(503, "later")
        else:
            await handshake_server(rest)(call)

    async with raw_server(handle) as server, connected(server.url) as (peer, _):
        refuse = True
        with pytest.raises(HttpError, match="HTTP 404: who\\?") as lost:
            await peer.request("tools/list")
        assert isinstance(lost.value.__cause__, HttpError)
        assert lost.value.__cause__.status == 503


@pytest.mark.covers("HTT-08", "HTT-13")
@pytest.mark.parametrize("who", ["request", "listener"])
async def test_a_renewed_session_is_listened_to(who: str) -> None:
    """Whoever notices first that the session is gone: the new one is heard."""
    sessions: list[str] = []
    forget = asyncio.Event()

    async def handle(call: Call) -> None:
        if call.rpc == "initialize":
            sessions.append(f"s{len(sessions)}")
            result = {"protocolVersion": "2025-06-18", "capabilities": {}}
            await call.result(result, Mcp_Session_Id=sessions[-1])
        elif call.headers.get("mcp-session-id") != sessions[-1]:
            await call.answer(404)
        elif call.rpc == "GET":
            await call.begin_events()
            await call.event(progress(len(sessions)), id=f"g{len(sessions)}", retry="1")
            if who == "listener" and len(sessions) == 1:
                await forget.wait()
                await call.end()
            else:
                await call.gone()
        elif "id" in call.message:
            await call.result({})
        else:
            await call.accept()

    host = Host()
    async with (
        raw_server(handle) as server,
        connected(server.url, host=host) as (peer, channel),
    ):
        await host.told.get()
        sessions.append("another")
        forget.set()
        if who == "request":
            await peer.request("tools/list")
        told = await host.told.get()
        assert json.loads(bytes(told.params))["data"] == 3  # type: ignore[arg-type]
        assert channel.session_id == "s2"
        assert "last-event-id" not in server.of("GET")[-1].headers
        assert len(server.of("initialize")) == 2
        await peer.request("tools/list")
