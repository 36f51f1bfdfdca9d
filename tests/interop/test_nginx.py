"""Our server behind nginx, with response buffering on and off."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import Context, MCPClient, MCPClientConfig, MCPServer
from fairlead.client.connection.era_cache import known_eras
from tests.support.http_server import Desk, Web, make_server, next_message, serving, stateless
from tests.support.interop.nginx import program, proxied

ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}


@pytest.fixture(autouse=True, scope="module")
def _nginx() -> None:
    program()


@pytest.fixture(params=["1.1 unbuffered", "1.1 buffered", "1.0 unbuffered", "1.0 buffered"])
def settings(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Return settings for nginx, which uses HTTP/1.0 and buffers responses by default."""
    version, buffered = request.param.split(" ")
    buffering = "proxy_buffering " + ("on" if buffered == "buffered" else "off")
    return (f"proxy_http_version {version}", buffering, "proxy_read_timeout 10s")


def talking(desk: Desk) -> MCPServer:
    """Return a server with a tool that reports progress and then waits."""
    server = make_server(desk)

    @server.tool()
    async def talk(ctx: Context) -> str:
        await ctx.progress(1, 2)
        desk.started.set()
        await desk.go_on.wait()
        return "said"

    return server


@contextlib.asynccontextmanager
async def behind(
    server: MCPServer, home: Path, settings: tuple[str, ...], **options: Any
) -> AsyncIterator[Web]:
    async with (
        serving(server, **options) as web,
        proxied(web.url.removesuffix("/mcp"), home, *settings) as url,
    ):
        yield Web(url, web.http)


async def test_calls_and_streams_work_through_nginx(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    """Each event arrives when it is sent, because `X-Accel-Buffering: no` disables buffering."""
    desk = Desk()
    server = talking(desk)
    async with behind(server, tmp_path, settings) as web:
        assert (await web.stateless("tools/call", ADD)).text == "3"

        body, headers = stateless("tools/call", {"name": "talk", "arguments": {}}, progressToken=1)
        sent = {**headers, "Content-Type": "application/json"}
        async with web.http.post(web.url, json=body, headers=sent) as response:
            assert (await next_message(response))["method"] == "notifications/progress"
            desk.go_on.set()
            assert (await next_message(response))["result"]["content"][0]["text"] == "said"

        wanted = {"notifications": {"toolsListChanged": True}}
        body, headers = stateless("subscriptions/listen", wanted)
        sent = {**headers, "Content-Type": "application/json"}
        async with web.http.post(web.url, json=body, headers=sent) as response:
            first = await next_message(response)
            assert first["method"] == "notifications/subscriptions/acknowledged"
            server.remove_tool("fail")
            assert (await next_message(response))["method"] == "notifications/tools/list_changed"

        session = await web.initialize()
        async with session.stream() as response:
            server.remove_tool("steps")
            assert (await next_message(response))["method"] == "notifications/tools/list_changed"


async def test_a_stream_that_nginx_closes_is_resumed(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    desk = Desk()
    known_eras.clear()
    settings = (*settings[:2], "proxy_read_timeout 1s")
    config = MCPClientConfig(protocol_version="2025-11-25", timeout_seconds=20)
    async with behind(talking(desk), tmp_path, settings, retry=0.1) as web:
        async with MCPClient.connect_http(web.url, config) as client:
            heard: list[float] = []

            def progress(done: float, *_: Any) -> None:
                heard.append(done)

            asking = asyncio.create_task(client.call("talk", on_progress=progress))
            async with asyncio.timeout(10):
                await desk.started.wait()
                log = tmp_path / "error.log"
                # Until nginx has received no data for a second.
                while "timed out" not in log.read_text():
                    await asyncio.sleep(0.05)
                desk.go_on.set()
                assert (await asking).text == "said"
            assert heard == [1]


async def test_heartbeats_keep_a_silent_stream_through_nginx_open(tmp_path: Path) -> None:
    desk = Desk()
    async with behind(talking(desk), tmp_path, ("proxy_read_timeout 1s",), heartbeat=0.3) as web:
        asking = asyncio.create_task(web.stateless("tools/call", {"name": "wait", "arguments": {}}))
        await asyncio.sleep(1.5)
        desk.go_on.set()
        assert (await asking).messages[-1]["result"]["content"][0]["text"] == "waited"


async def test_a_disconnect_at_nginx_cancels_the_call(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    desk = Desk()
    async with behind(talking(desk), tmp_path, settings) as web:
        asking = asyncio.create_task(web.stateless("tools/call", {"name": "wait", "arguments": {}}))
        async with asyncio.timeout(5):
            await desk.started.wait()
            asking.cancel()
            await desk.cancelled.wait()


@pytest.mark.parametrize(
    ("options", "headers", "status"),
    [
        ({}, {"Host": "mcp.example"}, 403),
        ({"allowed_hosts": ("mcp.example",)}, {"Host": "mcp.example"}, 200),
        ({"allowed_hosts": ("mcp.example",)}, {"Host": "evil.example"}, 403),
        ({}, {"Origin": "https://app.example"}, 403),
        ({"allowed_origins": ("https://app.example",)}, {"Origin": "https://app.example"}, 200),
    ],
)
async def test_host_and_origin_are_checked_behind_nginx(
    options: dict[str, Any], headers: dict[str, str], status: int, tmp_path: Path
) -> None:
    async with behind(
        make_server(), tmp_path, ("proxy_set_header Host $http_host",), **options
    ) as web:
        body, sent = stateless("tools/call", ADD)
        assert (await web.post(body, {**sent, **headers})).status == status
