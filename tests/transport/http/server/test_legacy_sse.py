"""HTTP+SSE of 2024-11-05: one stream to the client, and POSTs from it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.errors import ChannelClosed
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.envelope import TransportContext
from fairlead.server.http_app.app import HttpApp
from fairlead.transport.http.server.http_settings import HttpSettings
from fairlead.transport.http.server.legacy_sse import SseSession
from fairlead.wire import Notification
from fairlead.wire.sse import HEARTBEAT
from tests.support.asgi_requests import AsgiRequest
from tests.support.fake_http_transport import turns
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
from tests.support.virtual_time import VirtualTime


async def say(web: Web, endpoint: str, body: Any) -> int:
    url = web.url.removesuffix("/mcp") + endpoint
    return (await web.post(body, url=url)).status


@pytest.mark.covers("SSE-03")
async def test_http_sse_serves_a_complete_conversation() -> None:
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
async def test_closing_the_stream_ends_its_session() -> None:
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


async def test_http_sse_can_be_disabled() -> None:
    async with serving(make_server(), sse_path=None) as web:
        assert (await web.get(web.url.replace("/mcp", "/sse"))).status == 404


async def test_http_sse_endpoints_refuse_wrong_methods_and_requests_over_the_limits() -> None:
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


async def test_requests_of_a_client_that_does_not_read_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(make_server()) as web:
        async with web.http.get(web.url.replace("/mcp", "/sse")) as stream:
            endpoint = (await next_event(stream))["data"]
            monkeypatch.setattr("fairlead.transport.http.server.legacy_sse.MAX_UNREAD", -1)
            told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert await say(web, endpoint, told) == 202
            assert await say(web, endpoint, introduction("2024-11-05")) == 503


# Without a socket


@contextlib.asynccontextmanager
async def streaming(
    desk: Desk | None = None, **settings: Any
) -> AsyncIterator[tuple[HttpApp, AsgiRequest, str]]:
    """Yield an application, an open event stream, and the id of its session."""
    app = HttpApp(make_server(desk), HttpSettings(**settings))
    async with app.running():
        stream = AsgiRequest(app, method="GET", path="/sse")
        await turns()
        head, _, session = stream.body.decode().strip().rpartition("session_id=")
        assert head == "event: endpoint\ndata: /messages?"
        yield app, stream, session
        stream.task.cancel()
        await asyncio.wait((stream.task,))


async def posted(app: HttpApp, session: str, message: Any, **headers: str | None) -> AsgiRequest:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    query = f"session_id={session}"
    made = AsgiRequest(app, message, fields, path="/messages", query=query)
    return await made


def data(stream: AsgiRequest) -> list[Any]:
    """Return the messages of a stream."""
    lines = [line for line in stream.body.decode().split("\n") if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


NOTE = {"jsonrpc": "2.0", "method": "notifications/x"}


async def test_a_message_is_accepted_and_answered_on_the_stream() -> None:
    async with streaming() as (app, stream, session):
        assert len(session) == 32
        accepted = await posted(app, session, introduction("2024-11-05"))
        assert (accepted.status, accepted.body) == (202, b"Accepted")
        assert accepted.headers["content-type"] == "text/plain"
        await turns()
        (answer,) = data(stream)
        assert (answer["id"], answer["result"]["protocolVersion"]) == (1, "2024-11-05")
        assert b"id: " not in stream.body, "not resumable"
        batch = [call("add", {"a": n, "b": 1}, n) for n in (5, 6)]
        assert (await posted(app, session, batch)).status == 202
        await turns()
        assert sorted(one["id"] for one in data(stream)) == [1, 5, 6]


@pytest.mark.parametrize(
    ("session", "message", "headers", "status", "text"),
    [
        (None, NOTE, {"content_type": "text/plain"}, 415, "Content-Type must be application/json"),
        ("x", NOTE, {}, 404, "unknown session: open one with GET /sse"),
        (None, b"{" + b" " * 100, {}, 413, "a message has at most 100 bytes"),
        (None, b"{", {}, 400, "-32700"),
        (None, NOTE, {"content_type": "application/vnd.x+json"}, 202, "Accepted"),
    ],
    ids=["text", "unknown session", "too long", "noise", "other JSON"],
)
async def test_invalid_messages_are_refused(
    session: str | None, message: Any, headers: Any, status: int, text: str
) -> None:
    async with streaming(max_body=100) as (app, _, own):
        asked = await posted(app, session or own, message, **headers)
        assert asked.status == status
        assert text in asked.body.decode()


async def test_a_session_belongs_to_its_principal() -> None:
    tokens = {"a": "ada", "b": "bob"}
    app = HttpApp(make_server(), HttpSettings(verify_token=tokens.get))
    async with app.running():
        fields: Any = {"authorization": "Bearer a"}
        stream = AsgiRequest(app, headers=fields, method="GET", path="/sse")
        await turns()
        session = stream.body.decode().strip().rpartition("session_id=")[2]
        assert (await posted(app, session, NOTE, authorization="Bearer b")).status == 404
        assert (await posted(app, session, NOTE, authorization="Bearer a")).status == 202
        stream.disconnect()
        stream.task.cancel()
        await asyncio.wait((stream.task,))


async def test_requests_are_refused_above_the_limit_of_unread_bytes() -> None:
    async with streaming() as (app, stream, session):
        channel = app._legacy._sessions[session]
        stream.held = asyncio.Event()
        channel.stream.put(b"{}")
        await turns()
        channel.stream.put(bytes(16 << 20))
        assert (await posted(app, session, introduction())).status == 202
        await turns()
        refused = await posted(app, session, introduction())
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert refused.body.endswith(b": too much unread data: read the stream first\n")
        assert (await posted(app, session, NOTE)).status == 202
        assert channel.congested
        draining = asyncio.ensure_future(channel.drain())
        await turns()
        assert not draining.done()
        stream.held.set()
        await draining
        assert not channel.congested


@pytest.mark.parametrize(("size", "congested"), [(1 << 20, False), ((1 << 20) + 1, True)])
async def test_a_stream_is_congested_above_one_mebibyte_of_unread_events(
    size: int, congested: bool
) -> None:
    channel = SseSession(TransportContext(transport_type="sse"), ANONYMOUS)
    channel.stream.attach(object())
    channel.stream.put(bytes(size))
    assert channel.congested == congested


async def test_no_message_is_sent_after_the_end_of_the_stream() -> None:
    channel = SseSession(TransportContext(transport_type="sse"), ANONYMOUS)
    channel.send_success(1, b"{}")
    channel.send(Notification("x"))
    assert len(channel.stream.take()) == 2
    await channel.close()
    assert channel.stream.done
    for attempt in (lambda: channel.send(Notification("x")), lambda: channel.send_success(1, b"")):
        with pytest.raises(ChannelClosed) as closed:
            attempt()
        assert closed.value.delivered is False


async def test_the_end_of_a_stream_cancels_its_calls() -> None:
    desk = Desk()
    async with streaming(desk) as (app, stream, session):
        await posted(app, session, introduction("2024-11-05"))
        await posted(app, session, call("wait"))
        await turns()
        assert desk.started.is_set()
        await app._legacy.close()
        async with asyncio.timeout(5):
            await stream.task
        assert desk.cancelled.is_set()
        assert (await posted(app, session, NOTE)).status == 404


async def test_a_client_at_its_limit_loses_its_first_stream_or_is_refused() -> None:
    async with streaming(max_sessions=5, max_sessions_per_client=1) as (app, first, _):
        second = AsgiRequest(app, method="GET", path="/sse")
        await turns()
        statuses = (first.task.done(), second.status)
        assert statuses in ((True, 200), (False, 503))
        if second.status == 503:
            assert second.headers["retry-after"] == "5"
        second.task.cancel()
        await asyncio.wait((second.task,))


async def test_heartbeats_are_sent_on_an_event_stream(virtual_time: VirtualTime) -> None:
    async with streaming(heartbeat=5.0) as (_, stream, _):
        await asyncio.sleep(10.5)
        assert stream.body.count(HEARTBEAT) == 2


@pytest.mark.parametrize(
    ("method", "path", "allow"), [("POST", "/sse", "GET"), ("GET", "/messages", "POST")]
)
async def test_unsupported_methods_get_a_405_with_the_allowed_method(
    method: str, path: str, allow: str
) -> None:
    app = HttpApp(make_server(), HttpSettings())
    async with app.running():
        asked = await AsgiRequest(app, method=method, path=path)
        assert (asked.status, asked.headers["allow"]) == (405, allow)
