"""HTTP+SSE of 2024-11-05: one stream to the client, POSTs the other way."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.http_server import (
    LIMIT,
    Desk,
    Web,
    call,
    introduction,
    make_server,
    next_event,
    serving,
)


async def say(web: Web, endpoint: str, body: Any) -> int:
    url = web.url.removesuffix("/mcp") + endpoint
    return (await web.post(body, url=url)).status


@pytest.mark.covers("SSE-03")
async def test_a_conversation_of_2024() -> None:
    async with serving(make_server()) as web:
        async with web.http.get(web.url.replace("/mcp", "/sse")) as stream:
            assert stream.content_type == "text/event-stream"
            first = await next_event(stream)
            assert first["event"] == "endpoint"
            endpoint = first["data"]
            assert await say(web, endpoint, introduction("2024-11-05")) == 202
            answer = json.loads((await next_event(stream))["data"])
            assert answer["result"]["protocolVersion"] == "2024-11-05"
            told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert await say(web, endpoint, told) == 202
            assert await say(web, endpoint, call("steps", progressToken="t")) == 202
            said = [json.loads((await next_event(stream))["data"]) for _ in range(3)]
            assert [m.get("method") for m in said[:2]] == ["notifications/progress"] * 2
            assert said[2]["result"]["content"][0]["text"] == "done"
            assert await say(web, endpoint, b"{") == 400
            assert await say(web, endpoint.replace("session_id=", "session_id=x"), told) == 404


@pytest.mark.covers("SSE-03")
async def test_when_the_stream_ends_everything_does() -> None:
    desk = Desk()
    async with serving(make_server(desk)) as web:
        async with web.http.get(web.url.replace("/mcp", "/sse")) as stream:
            endpoint = (await next_event(stream))["data"]
            await say(web, endpoint, introduction("2024-11-05"))
            await next_event(stream)
            await say(web, endpoint, call("wait"))
            async with asyncio.timeout(LIMIT):
                await desk.started.wait()
        async with asyncio.timeout(LIMIT):
            await desk.cancelled.wait()
            while await say(web, endpoint, call("add")) != 404:
                await asyncio.sleep(0.01)


async def test_it_can_be_left_out() -> None:
    async with serving(make_server(), sse_path=None) as web:
        assert (await web.get(web.url.replace("/mcp", "/sse"))).status == 404


async def test_other_methods_and_too_much_are_refused() -> None:
    async with serving(make_server(), max_body=200, max_sessions=1) as web:
        url = web.url.replace("/mcp", "/sse")
        wrong = await web.post({}, url=url)
        assert (wrong.status, wrong.headers["allow"]) == (405, "GET")
        async with web.http.get(url) as stream:
            endpoint = (await next_event(stream))["data"]
            assert (await web.get(url)).status == 503
            wrong = await web.get(web.url.removesuffix("/mcp") + endpoint)
            assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
            assert await say(web, endpoint, {"padding": "x" * 200}) == 413
        async with asyncio.timeout(LIMIT):
            while (status := await opened(web, url)) == 503:
                await asyncio.sleep(0.01)
        assert status == 200


async def opened(web: Web, url: str) -> int:
    async with web.http.get(url) as stream:
        return int(stream.status)


async def test_a_client_that_reads_nothing_may_ask_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(make_server()) as web:
        async with web.http.get(web.url.replace("/mcp", "/sse")) as stream:
            endpoint = (await next_event(stream))["data"]
            monkeypatch.setattr("fairlead.transport.http.server.legacy_sse.MAX_UNREAD", -1)
            told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert await say(web, endpoint, told) == 202
            assert await say(web, endpoint, introduction("2024-11-05")) == 503
