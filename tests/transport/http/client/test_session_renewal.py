"""A server over HTTP that forgot our session: what was asked for holds, and what was missed too."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

from fairlead import Context, MCPClient, MCPClientConfig, MCPServer

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
