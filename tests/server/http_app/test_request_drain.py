"""Draining: running requests are counted and finish, and new sessions are refused."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from msgspec import Struct, field

from fairlead import MCPClient, MCPClientConfig, MCPServer
from fairlead.server.http_app.request_drain import DrainPlan, StopSignals
from fairlead.server.http_app.uvicorn_runner import bind, serve_http, url_of

LIMIT = 20.0


class Place(Struct):
    """A server that is told to stop while tests use it."""

    url: str
    serving: asyncio.Task[None]
    begun: asyncio.Event
    go_on: asyncio.Event
    reports: list[str]
    reported: asyncio.Event = field(default_factory=asyncio.Event)

    async def stop(self) -> None:
        """Begin to stop, and return once the drain has begun."""
        self.serving.cancel()
        await self.reported.wait()


@asynccontextmanager
async def place(drain: DrainPlan) -> AsyncIterator[Place]:
    server, begun, go_on = MCPServer("s"), asyncio.Event(), asyncio.Event()

    @server.tool()
    async def work() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    app = server.create_http_app()
    listening = bind("127.0.0.1", 0, None, app.settings, insecure=False)
    opened = asyncio.Event()
    serving = asyncio.create_task(serve_http(app, listening, started=opened.set, drain=drain))
    it = Place(url_of(listening, "", tls=False), serving, begun, go_on, [])

    def report(text: str) -> None:
        it.reports.append(text)
        it.reported.set()

    drain.report = report
    async with asyncio.timeout(LIMIT):
        await opened.wait()
        try:
            yield it
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving


@pytest.mark.parametrize("transport", ["websocket", "sse", "session", "stateless"])
async def test_running_requests_of_every_transport_finish_before_the_server_stops(
    transport: str,
) -> None:
    async with place(DrainPlan(limit=600.0)) as it, aiohttp.ClientSession() as web:
        version = "2026-07-28" if transport == "stateless" else "2025-06-18"
        entries = {
            "websocket": {"type": "websocket", "url": f"ws{it.url[4:]}/ws"},
            "sse": {"type": "sse", "url": f"{it.url}/sse"},
        }
        entry = entries.get(transport, {"type": "http", "url": f"{it.url}/mcp"})
        async with MCPClient.connect_entry(
            entry, MCPClientConfig(protocol_version=version)
        ) as client:
            call = asyncio.create_task(client.call("work"))
            await it.begun.wait()
            await it.stop()
            assert it.reports[0].startswith("draining: 1 request is running, new sessions are ")
            async with web.get(f"{it.url}/ready") as answer:
                assert (answer.status, await answer.json()) == (503, {"ready": False})
            async with web.get(f"{it.url}/sse") as answer:
                assert (answer.status, answer.headers["retry-after"]) == (503, "5")
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await web.ws_connect(f"{it.url}/ws")
            assert refused.value.status == 503
            it.go_on.set()
            assert (await call).text == "done"
            with suppress(asyncio.CancelledError):
                await it.serving
        assert it.reports[1].endswith("s: all requests have finished")


async def test_a_server_without_running_requests_stops_without_a_report() -> None:
    async with place(DrainPlan(limit=600.0)) as it:
        it.serving.cancel()
        with suppress(asyncio.CancelledError):
            await it.serving
        assert it.reports == []


async def test_ctrl_c_ends_the_drain_as_soon_as_no_request_is_running() -> None:
    signals = StopSignals()
    signals.receive(signal.SIGINT)
    async with place(DrainPlan(limit=600.0, keeps_listening=True, signals=signals)) as it:
        it.serving.cancel()
        with suppress(asyncio.CancelledError):
            await it.serving
        assert it.reports == []


async def test_after_sigterm_a_server_listens_until_a_second_signal() -> None:
    signals = StopSignals()
    signals.receive(signal.SIGTERM)
    async with place(DrainPlan(limit=600.0, keeps_listening=True, signals=signals)) as it:
        await it.stop()
        assert "no request is running" in it.reports[0]
        async with aiohttp.ClientSession() as web, web.get(f"{it.url}/ready") as answer:
            assert answer.status == 503
        signals.receive(signal.SIGTERM)
        with suppress(asyncio.CancelledError):
            await it.serving
