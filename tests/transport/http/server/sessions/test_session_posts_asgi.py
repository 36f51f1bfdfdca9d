"""POSTs in sessions, without a socket: timing of responses, and remaining state."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.server.http_app.app import HttpApp
from fairlead.transport.http.server.http_settings import HttpSettings
from fairlead.wire.sse import HEARTBEAT
from tests.support.asgi_requests import AsgiRequest
from tests.support.fake_http_transport import turns
from tests.support.http_server import BOTH, Desk, call, introduction, make_server
from tests.support.virtual_time import VirtualTime

STOPPED = b"500 Internal Server Error: the server was stopped before it completed the request\n"


@contextlib.asynccontextmanager
async def serving(desk: Desk | None = None, **settings: Any) -> AsyncIterator[HttpApp]:
    app = HttpApp(make_server(desk), HttpSettings(**settings))
    async with app.running():
        yield app


async def open_session(app: HttpApp, version: str = "2025-11-25") -> dict[str, str | None]:
    """Open a session and return the headers of requests in it."""
    opened = await AsgiRequest(app, introduction(version))
    fields: dict[str, str | None] = {"mcp-session-id": opened.headers["mcp-session-id"]}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await AsgiRequest(app, ready, fields)).status == 202
    return fields


NOTE = {"jsonrpc": "2.0", "method": "notifications/x"}
OLD = {"mcp-protocol-version": "2025-03-26"}


# Responses


async def test_an_answered_request_leaves_no_task(virtual_time: VirtualTime) -> None:
    desk = Desk()
    desk.go_on.set()
    async with serving(desk) as app:
        fields = await open_session(app)
        await asyncio.sleep(1)
        before = asyncio.all_tasks()
        for message in (call("add", {"a": 1, "b": 2}), call("wait"), introduction()):
            answered = await AsgiRequest(app, message, fields)
            assert (answered.status, answered.headers["content-type"]) == (
                *(200, "application/json"),
            )
        await asyncio.sleep(1)
        left = [task.get_coro().__qualname__ for task in asyncio.all_tasks() - before]
        assert not [name for name in left if name.startswith("AsgiCall")]


async def test_a_long_call_starts_a_stream_with_its_first_heartbeat(
    virtual_time: VirtualTime,
) -> None:
    desk = Desk()
    async with serving(desk, heartbeat=15.0) as app:
        fields = await open_session(app)
        asked = AsgiRequest(app, call("wait"), fields)
        await asyncio.sleep(14.9)
        assert asked.sent == []
        await asyncio.sleep(0.3)
        assert (asked.status, asked.headers["content-type"]) == (200, "text/event-stream")
        assert HEARTBEAT not in asked.body
        await asyncio.sleep(15.1)
        assert asked.body.count(HEARTBEAT) == 1
        desk.go_on.set()
        await asked
        assert b"waited" in asked.body
        size = len(asked.sent)
        await asyncio.sleep(60)
        assert len(asked.sent) == size


async def test_a_client_that_accepts_only_json_gets_no_heartbeats(
    virtual_time: VirtualTime,
) -> None:
    desk = Desk()
    async with serving(desk, heartbeat=5.0) as app:
        fields = {**await open_session(app), "accept": "application/json"}
        asked = AsgiRequest(app, call("wait"), fields)
        await asyncio.sleep(50)
        assert asked.sent == []
        desk.go_on.set()
        await asked
        assert asked.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("closing", "accept", "status"),
    [(False, BOTH, 200), (False, "application/json", 404), (True, BOTH, 500)],
)
async def test_a_pending_request_is_answered_when_its_session_closes(
    closing: bool, accept: str, status: int
) -> None:
    app = HttpApp(make_server(desk := Desk()), HttpSettings())
    async with app.running():
        fields = await open_session(app)
        asked = AsgiRequest(app, call("wait"), {**fields, "accept": accept})
        await turns()
        if not closing:
            assert (await AsgiRequest(app, headers=fields, method="DELETE")).status == 200
            await asked
    await asked
    assert (asked.status, desk.cancelled.is_set()) == (status, True)
    if status == 200:
        assert (asked.headers["content-type"], asked.body) == ("text/event-stream", HEARTBEAT)
    elif status == 500:
        assert asked.body == STOPPED
    else:
        assert asked.error == (-32600, "Unknown session: send initialize to open a new one")


async def test_a_disconnect_does_not_cancel_the_request(virtual_time: VirtualTime) -> None:
    desk = Desk()
    async with serving(desk) as app:
        fields = await open_session(app)
        asked = AsgiRequest(app, call("wait"), fields)
        await asyncio.sleep(1)
        asked.disconnect()
        await asked
        assert (asked.sent, desk.cancelled.is_set()) == ([], False)
        again = await AsgiRequest(app, call("add"), fields)
        assert (again.status, again.error[1]) == (400, "Request id 7 is already in use")
        desk.go_on.set()
        await turns()
        assert (await AsgiRequest(app, call("add"), fields)).status == 200


async def test_a_disconnect_during_initialize_leaves_no_session(
    virtual_time: VirtualTime,
) -> None:
    release = asyncio.Event()

    async def slow(exchange: Exchange, proceed: Proceed) -> Answer:
        await release.wait()
        return await proceed(exchange)

    app = HttpApp(MCPServer(make_server().config, interceptors=[slow]), HttpSettings())
    async with app.running():
        asked = AsgiRequest(app, introduction())
        await asyncio.sleep(1)
        assert (asked.sent, len(app.edge.sessions)) == ([], 1)
        asked.disconnect()
        await asked
        assert (asked.sent, len(app.edge.sessions)) == ([], 0)


# Opening


async def test_no_session_is_opened_during_shutdown() -> None:
    async with serving() as app:
        await app.edge.close()
        asked = await AsgiRequest(app, introduction())
        assert (asked.status, asked.headers["retry-after"]) == (503, "5")
        assert asked.body == b"503 Service Unavailable: the server is shutting down\n"
        batch = await AsgiRequest(app, [call("add")], {**OLD})
        assert batch.status == 503


async def test_requests_that_arrive_in_sessions_after_the_shutdown_are_answered_with_503() -> None:
    """After 404, clients would forget sessions that the next process may restore."""
    async with serving() as app:
        fields = await open_session(app)
        waiting = AsgiRequest(app, call("wait"), {**fields, "accept": "application/json"})
        await turns()
        await app.edge.close()
        later = AsgiRequest(app, call("add"), fields)
        stream = AsgiRequest(app, b"", {**fields, "accept": "text/event-stream"}, method="GET")
        await waiting
        # Clients repeat a request that got 503, but this one was running.
        assert (waiting.status, "retry-after" in waiting.headers) == (500, False)
        assert waiting.body == STOPPED
        for asked in (later, stream):
            await asked
            assert (asked.status, asked.headers["retry-after"]) == (503, "5")
            assert asked.body == b"503 Service Unavailable: the server is shutting down\n"


async def test_sessions_above_the_limit_of_a_client_are_refused() -> None:
    desk = Desk()
    async with serving(desk, max_sessions=1) as app:
        fields = await open_session(app)
        waiting = AsgiRequest(app, call("wait"), fields)
        await turns()
        for message in (introduction(), [call("add")]):
            refused = await AsgiRequest(app, message, {**OLD})
            assert refused.status == 503
            assert refused.body.endswith(b": too many sessions; try again later\n")
        desk.go_on.set()
        await waiting


async def test_a_refused_initialize_opens_no_session() -> None:
    async with serving() as app:
        message = {**introduction(), "params": {"protocolVersion": 5}}
        asked = await AsgiRequest(app, message)
        assert (asked.status, "mcp-session-id" in asked.headers) == (200, False)
        assert "error" in asked.json
        await turns()
        assert len(app.edge.sessions) == 0


# Batches


ADD = [call("add", {"a": n, "b": 1}, n) for n in (1, 2)]


@pytest.mark.parametrize(
    ("batch", "headers", "status", "problem"),
    [
        (ADD, {}, 200, None),
        (ADD, OLD, 200, None),
        (ADD, {"mcp-protocol-version": "2025-06-18"}, 400, "Batches are not part of the agreed"),
        (ADD, {"mcp-protocol-version": "1999"}, 400, "Batches are not part of the agreed"),
        (ADD, {"mcp-session-id": "another"}, 404, "Unknown session: send initialize"),
        ([*ADD, {"jsonrpc": "2.0", "id": 1, "method": 5}], {}, 400, ""),
        ([NOTE], {}, 202, None),
    ],
    ids=["alone", "old", "new", "unknown", "no session", "malformed", "notification"],
)
async def test_a_batch_without_a_session_is_served_if_the_revision_allows_batches(
    batch: Any, headers: dict[str, str | None], status: int, problem: str | None
) -> None:
    async with serving() as app:
        asked = await AsgiRequest(app, batch, headers)
        assert asked.status == status
        if status == 200:
            texts = {one["id"]: one["result"]["content"][0]["text"] for one in asked.json}
            assert texts == {1: "2", 2: "3"}
        elif problem is not None:
            assert problem in asked.error[1]
            assert asked.error[0] in (-32600, -32700)
        await turns()
        assert len(app.edge.sessions) == 0, "the temporary session was closed"


@pytest.mark.parametrize(("version", "status"), [("2025-03-26", 200), ("2025-06-18", 400)])
async def test_a_batch_in_a_session_depends_on_the_revision(version: str, status: int) -> None:
    async with serving() as app:
        fields = await open_session(app, version)
        asked = await AsgiRequest(app, ADD, fields)
        assert (asked.status, len(app.edge.sessions)) == (status, 1)
        if status == 200:
            assert sorted(one["id"] for one in asked.json) == [1, 2]
            one = await AsgiRequest(app, ADD[:1], fields)
            assert [answer["id"] for answer in one.json] == [1], (
                "a batch of one gets an array as its response"
            )


@pytest.mark.parametrize(("require", "status"), [(True, 400), (False, 200)])
async def test_a_batch_is_refused_if_a_session_is_required(require: bool, status: int) -> None:
    async with serving(require_session=require) as app:
        assert (await AsgiRequest(app, ADD)).status == status
        fields = await open_session(app, "2025-03-26")
        assert (await AsgiRequest(app, ADD, fields)).status == 200


async def test_a_batch_without_a_session_is_served_in_a_temporary_session() -> None:
    """The endpoint sends the handshake itself, because the server requires one."""
    async with serving() as app:
        batch = [{"jsonrpc": "2.0", "id": "list", "method": "tools/list"}, NOTE]
        asked = await AsgiRequest(app, batch, {**OLD})
        (answer,) = asked.json
        assert answer["id"] == "list"
        assert "tools" in answer["result"]


# Streams


async def test_a_stream_detached_by_the_server_is_resumed() -> None:
    desk = Desk()
    async with serving(desk, retry=0.25) as app:
        fields = await open_session(app)
        asked = await AsgiRequest(app, call("come_back"), fields)
        assert asked.headers["content-type"] == "text/event-stream"
        (first,) = [line for line in asked.body.decode().split("\n") if line.startswith("id: ")]
        assert "retry: 250" in asked.body.decode()
        more = {**fields, "last-event-id": first.removeprefix("id: ")}
        again = AsgiRequest(app, headers=more, method="GET")
        await turns()
        assert (again.status, b"retry" in again.body) == (200, False), "no second priming event"
        desk.go_on.set()
        await again
        (event,) = [line for line in again.body.decode().split("\n") if line.startswith("data: {")]
        assert json.loads(event.removeprefix("data: "))["id"] == 7


async def test_a_listening_stream_begins_with_a_priming_event() -> None:
    async with serving() as app:
        fields = await open_session(app)
        listening = AsgiRequest(app, headers=fields, method="GET")
        await turns()
        assert b"".join([event.get("body", b"") for event in listening.sent[1:]]) == (
            b"id: g_0\nretry: 1000\ndata: \n\n"
        )
        listening.task.cancel()
        await asyncio.wait((listening.task,))


@pytest.mark.parametrize(
    ("version", "ids"), [("2024-11-05", 0), ("2025-03-26", 3), ("2025-06-18", 3), ("2025-11-25", 4)]
)
async def test_events_have_ids_if_the_revision_supports_resuming(version: str, ids: int) -> None:
    async with serving() as app:
        fields = await open_session(app, version)
        asked = await AsgiRequest(app, call("steps", {}, 8, progressToken=1), fields)
        assert asked.headers["content-type"] == "text/event-stream"
        assert asked.body.count(b"id: ") == ids
