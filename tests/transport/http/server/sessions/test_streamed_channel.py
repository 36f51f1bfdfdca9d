"""Sessions and streams: messages before a response, idle timeouts, limits and shutdown."""

import asyncio
import contextlib
import json
from typing import Any

import aiohttp
import pytest

from fairlead import Context, MCPServer
from tests.support.http_server import (
    LIMIT,
    Desk,
    Session,
    Web,
    call,
    happens,
    make_server,
    next_message,
    serving,
    stateless,
)

# Stateless


@pytest.mark.covers("SRV-40", "SSE-08")
async def test_the_response_is_json_unless_a_message_precedes_it(
    options: dict[str, Any],
) -> None:
    async with serving(make_server(), **options) as web:
        plain = await web.stateless("tools/call", {"name": "steps", "arguments": {}})
        assert plain.kind == "application/json"  # the client requested no progress
        answer = await web.stateless(
            "tools/call", {"name": "steps", "arguments": {}}, progressToken="t"
        )
        assert (plain.status, answer.status) == (200, 200)
        assert answer.kind == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        assert answer.headers["x-accel-buffering"] == "no"
        first, second, last = answer.messages
        assert [first["params"]["progress"], second["params"]["progress"]] == [1, 2]
        assert last["result"]["content"][0]["text"] == "done"
        assert not any(
            "id" in event for event in answer.events
        )  # stateless streams cannot be resumed


async def test_an_error_before_the_first_event_is_sent_with_its_http_status(
    options: dict[str, Any],
) -> None:
    async with serving(make_server(), **options) as web:
        answer = await web.stateless("tools/call", {"name": "name", "arguments": {}})
        assert (answer.status, answer.error) == (400, -32021)
        assert answer.json["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}


async def test_a_disconnect_cancels_a_stateless_request(options: dict[str, Any]) -> None:
    desk = Desk()
    async with serving(make_server(desk), **options) as web:
        body, headers = stateless("tools/call", {"name": "wait", "arguments": {}})
        asking = asyncio.create_task(web.post(body, headers))
        await happens(desk.started)
        asking.cancel()
        await happens(desk.cancelled)
        assert (await web.stateless("server/discover")).status == 200


async def test_one_connection_serves_many_requests(options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(connector=connector) as http:
            one = Web(web.url, http)
            for n in range(5):
                params = {"name": "add", "arguments": {"a": n, "b": 1}}
                assert (await one.stateless("tools/call", params)).text == str(n + 1)
                streamed = await one.stateless(
                    "tools/call", {"name": "steps", "arguments": {}}, progressToken=1
                )
                assert len(streamed.messages) == 3
                assert (await one.get()).status == 405


@pytest.mark.covers("SRV-48")
async def test_pipelined_requests_are_answered_in_order(
    options: dict[str, Any],
) -> None:
    """Send three requests in one write (pipelining)."""
    async with serving(make_server(), **options) as web:
        host, _, port = web.url.removeprefix("http://").removesuffix("/mcp").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        whole = b""
        for n in range(3):
            body, headers = stateless("tools/call", {"name": "add", "arguments": {"a": n, "b": 0}})
            text = json.dumps(body).encode()
            lines = [f"{k}: {v}" for k, v in headers.items()]
            head = "\r\n".join(
                ["POST /mcp HTTP/1.1", f"Host: {host}", "Content-Type: application/json", *lines]
            )
            whole += f"{head}\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text
        writer.write(whole)
        async with asyncio.timeout(LIMIT):
            seen = b""
            while seen.count(b"HTTP/1.1 200") < 3 or not seen.endswith(b"}}}}"):
                seen += await reader.read(65536)
        assert [seen.index(b'"text":"%d"' % n) for n in range(3)] == sorted(
            seen.index(b'"text":"%d"' % n) for n in range(3)
        )
        writer.close()


@pytest.mark.covers("SSE-09")
async def test_heartbeats_keep_a_slow_response_alive(options: dict[str, Any]) -> None:
    desk = Desk()
    async with serving(make_server(desk), heartbeat=0.05, **options) as web:
        body, headers = stateless("tools/call", {"name": "wait", "arguments": {}})
        sent = {**headers, "Content-Type": "application/json"}
        async with web.http.post(web.url, json=body, headers=sent) as response:
            assert response.content_type == "text/event-stream"
            assert await response.content.readline() == b": heartbeat\n"
            desk.go_on.set()
            assert (await next_message(response))["result"]["content"][0]["text"] == "waited"


async def test_a_subscription_is_acknowledged_and_receives_changes(
    options: dict[str, Any],
) -> None:
    server = make_server()
    async with serving(server, **options) as web:
        params = {"notifications": {"toolsListChanged": True}}
        body, headers = stateless("subscriptions/listen", params)
        sent = {**headers, "Content-Type": "application/json"}
        async with web.http.post(web.url, json=body, headers=sent) as response:
            first = await next_message(response)
            assert first["method"] == "notifications/subscriptions/acknowledged"
            server.remove_tool("fail")
            told = await next_message(response)
            assert told["method"] == "notifications/tools/list_changed"
            assert told["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 5}


# Sessions


@pytest.mark.covers("SRV-44")
async def test_an_unused_session_expires_and_a_session_in_use_does_not() -> None:
    async with serving(make_server(), session_idle=0.2) as web:
        idle, used = await web.initialize(), await web.initialize()
        async with used.stream() as listening:
            async with asyncio.timeout(LIMIT):
                while (await idle_status(idle)) != 404:
                    await asyncio.sleep(0.25)  # longer than the idle timeout
            assert listening.status == 200
            assert (await used.call("add", {"a": 1, "b": 2})).text == "3"


async def test_a_long_call_restarts_the_idle_timeout() -> None:
    desk = Desk()
    async with serving(make_server(desk), session_idle=0.4) as web:
        session = await web.initialize()
        calling = asyncio.create_task(session.call("wait"))
        async with asyncio.timeout(LIMIT):
            await desk.started.wait()
        await asyncio.sleep(0.5)  # longer than the idle timeout
        desk.go_on.set()
        assert (await calling).text == "waited"
        await asyncio.sleep(0.2)  # several sweeps later
        assert (await session.call("add", {"a": 1, "b": 2})).text == "3"


async def idle_status(session: Session) -> int:
    return (await session.post(call("add", {"a": 1, "b": 2}))).status


@pytest.mark.covers("SRV-44")
async def test_the_number_of_sessions_is_limited() -> None:
    async with serving(make_server(), max_sessions=2) as web:
        first, second = await web.initialize(), await web.initialize()
        async with second.stream():
            # Replaces the first session, which was idle for the longest time.
            third = await web.initialize()
            assert (await first.call("add", {"a": 1, "b": 2})).status == 404
            async with third.stream():
                refused = await web.post({**call("x"), "method": "initialize"} | _introduced())
                assert refused.status == 503
                assert refused.headers["retry-after"]
            assert (await second.call("add", {"a": 1, "b": 2})).text == "3"


def _introduced() -> dict[str, Any]:
    from tests.support.http_server import introduction

    return introduction()


@pytest.mark.covers("SRV-44")
async def test_a_session_belongs_to_its_principal() -> None:
    people = {"a-token": "ada", "b-token": "bob"}
    async with serving(make_server(), verify_token=people.get) as web:
        adas = {"Authorization": "Bearer a-token"}
        answer = await web.post(_introduced(), adas)
        session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
        request = call("add", {"a": 1, "b": 2})
        assert (await web.post(request, {**session, **adas})).text == "3"
        bobs = {**session, "Authorization": "Bearer b-token"}
        assert (await web.post(request, bobs)).status == 404
        assert (await web.post(request, session)).status == 401


@pytest.mark.covers("SRV-10")
async def test_open_streams_do_not_delay_the_shutdown_of_the_server() -> None:
    server, loop = make_server(), asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        web = await stack.enter_async_context(serving(server))
        session = await web.initialize()
        listening = await stack.enter_async_context(session.stream())
        body, headers = stateless(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        sent = {**headers, "Content-Type": "application/json"}
        hearing = await web.http.post(web.url, json=body, headers=sent)
        await next_message(hearing)
        began = loop.time()
        await stack.aclose()
        assert loop.time() - began < 3
        assert listening is not None


async def test_a_slow_reader_does_not_delay_other_clients() -> None:
    server = MCPServer("web", rate_limit_rate=0)
    sent = 0

    @server.tool()
    async def flood(ctx: Context) -> str:
        nonlocal sent
        for n in range(2000):
            await ctx.progress(n, message="x" * 50_000)
            sent += 1
        return "done"

    @server.tool()
    async def quick() -> str:
        return "ok"

    async with serving(server) as web:
        session = await web.initialize()
        async with session.stream(call("flood", progressToken="t")):
            async with asyncio.timeout(LIMIT):
                while not sent:
                    await asyncio.sleep(0.01)
                before = -1
                while sent != before:  # until sending stops because the client does not read
                    before = sent
                    await asyncio.sleep(0.2)
            assert sent < 1000  # of 2000 messages, because the server waits for the client to read
            other = await web.initialize()
            assert (await other.call("quick")).text == "ok"


# Fragments


@pytest.mark.covers("SSE-12", "SRV-35", "DEC-06")
async def test_fragments_are_sent_as_progress_unless_the_client_accepts_the_fragment_dialect() -> (
    None
):
    server = MCPServer("web", rate_limit_rate=0)

    @server.tool()
    async def story(ctx: Context) -> str:
        await ctx.fragment("Once ")
        await ctx.fragment("upon")
        return "Once upon"

    async with serving(server) as web:
        params = {"name": "story", "arguments": {}}
        wanted = {"Accept": "application/json, text/event-stream;dialect=fragments"}
        answer = await web.stateless("tools/call", params, wanted)
        assert [event["event"] for event in answer.events] == ["result", "result", "complete"]
        first, _, last = answer.messages
        assert first == {"content": [{"type": "text", "text": "Once "}]}
        assert (last["id"], last["result"]["content"][0]["text"]) == (5, "Once upon")
        refused = await web.stateless("tools/call", {"name": "nobody", "arguments": {}}, wanted)
        assert refused.events[-1]["event"] == "error"
        plain = await web.stateless("tools/call", params, progressToken="t")
        assert [m["params"]["message"] for m in plain.messages[:2]] == ["Once ", "upon"]
        assert all("event" not in event for event in plain.events)
    async with serving(server, sse_dialect="fragments") as web:
        answer = await web.stateless("tools/call", params)
        assert answer.events[-1]["event"] == "complete"
        assert (await web.stateless("tools/list")).kind == "application/json"
