"""Streams that a client listens to or resumes, and termination of sessions."""

import asyncio
import json
from typing import Any

import pytest

from fairlead import Context
from fairlead.protocol.caller import ANONYMOUS
from fairlead.server.http_app.app import HttpApp
from fairlead.transport.http.server.http_settings import HttpSettings
from fairlead.transport.http.server.sessions.session_store import MemorySessionStore
from tests.support.asgi_requests import AsgiRequest
from tests.support.fake_http_transport import turns
from tests.support.http_server import (
    Desk,
    call,
    happens,
    introduction,
    make_server,
    next_event,
    next_message,
    serving,
)


@pytest.mark.covers("SSE-10", "SSE-11")
async def test_a_disconnect_does_not_cancel_a_session_call_and_its_stream_can_be_resumed() -> None:
    desk = Desk()
    server = make_server(desk)

    @server.tool()
    async def talk(ctx: Context) -> str:
        await ctx.progress(1)
        desk.started.set()
        await desk.go_on.wait()
        await ctx.progress(2)
        return "told"

    async with serving(server) as web:
        session = await web.initialize("2025-06-18")
        async with session.stream(call("talk", progressToken="t")) as response:
            first = await next_event(response)
            await happens(desk.started)
        desk.go_on.set()
        async with session.stream(**{"Last-Event-ID": first["id"]}) as response:
            assert (await next_message(response))["params"]["progress"] == 2
            assert (await next_message(response))["result"]["content"][0]["text"] == "told"
            assert await next_event(response) == {}
        # After the stream has ended, its events can still be read from the store.
        async with session.stream(**{"Last-Event-ID": first["id"]}) as response:
            assert (await next_message(response))["params"]["progress"] == 2


async def test_an_unknown_event_id_is_refused() -> None:
    async with serving(make_server()) as web:
        session = await web.initialize()
        for last in ("nonsense", "p99_1", "p1_99999999999999999999999"):
            async with session.stream(**{"Last-Event-ID": last}) as response:
                assert response.status == 400
        for last, said in (
            ("x" * 60, f"Invalid Last-Event-ID '{'x' * 50}': expected an id of this server"),
            ("p99_1", "The stream of event 'p99_1' has ended"),
        ):
            async with session.stream(**{"Last-Event-ID": last}) as response:
                error = (await response.json(content_type=None))["error"]
                assert (error["code"], error["message"]) == (-32600, said)


@pytest.mark.covers("SSE-10")
async def test_a_server_may_disconnect_and_the_client_resumes() -> None:
    desk = Desk()
    async with serving(make_server(desk), retry=0.01) as web:
        session = await web.initialize("2025-11-25")
        answer = await session.call("come_back")
        assert answer.kind == "text/event-stream"
        (priming,) = answer.events
        assert priming["data"] == ""
        desk.go_on.set()
        async with session.stream(**{"Last-Event-ID": priming["id"]}) as response:
            assert (await next_message(response))["result"]["content"][0]["text"] == "here it is"


@pytest.mark.covers("SSE-11")
async def test_messages_outside_a_request_go_to_the_listening_stream_only() -> None:
    server = make_server()
    async with serving(server) as web:
        session = await web.initialize("2025-06-18")
        async with session.stream() as response:
            server.remove_tool("fail")
            told = await next_event(response)
            assert json.loads(told["data"])["method"] == "notifications/tools/list_changed"
            answer = await session.call("add", {"a": 1, "b": 2})
            assert answer.kind == "application/json"
        # A client that resumes receives messages sent while no client was listening.
        await asyncio.sleep(0)
        server.remove_tool("steps")
        async with session.stream(**{"Last-Event-ID": told["id"]}) as response:
            assert (await next_message(response))["method"] == "notifications/tools/list_changed"


async def test_notifications_before_the_first_listener_are_kept_for_the_listener() -> None:
    server = make_server()
    async with serving(server) as web:
        session = await web.initialize()
        server.remove_tool("fail")
        await session.call("add", {"a": 1, "b": 2})
        async with session.stream() as response:
            assert (await next_message(response))["method"] == "notifications/tools/list_changed"


@pytest.mark.covers("SRV-40", "SRV-44")
async def test_delete_terminates_a_session() -> None:
    desk = Desk()
    async with serving(make_server(desk)) as web:
        session = await web.initialize()
        waiting = asyncio.create_task(session.call("wait"))
        await happens(desk.started)
        async with session.stream() as listening:
            async with web.http.delete(web.url, headers=session.headers) as response:
                assert response.status == 200
            assert await next_event(listening) in ({}, _priming(listening))
        await happens(desk.cancelled)
        await waiting
        assert (await session.call("add", {"a": 1, "b": 2})).status == 404
        async with web.http.delete(web.url, headers=session.headers) as response:
            assert response.status == 404
        async with web.http.delete(web.url) as response:
            assert response.status == 405


def _priming(_: object) -> Any:
    class Priming(dict[str, str]):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, dict) and other.get("data") == ""

        __hash__ = None  # type: ignore[assignment]

    return Priming()


# Without a socket


async def session_of(app: HttpApp, version: str = "2025-11-25") -> Any:
    """Return the session and the headers of requests in it."""
    opened = await AsgiRequest(app, introduction(version))
    name = opened.headers["mcp-session-id"]
    session = app.edge.sessions.get(name, ANONYMOUS)
    assert session is not None
    return session, {"mcp-session-id": name}


async def listening(app: HttpApp, headers: Any) -> AsgiRequest:
    asked = AsgiRequest(app, headers=headers, method="GET")
    await turns()
    return asked


async def left(*requests: AsgiRequest) -> None:
    for request in requests:
        request.task.cancel()
        await asyncio.wait((request.task,))


async def test_events_not_read_by_a_slow_connection_are_sent_once_to_the_next_connection() -> None:
    app = HttpApp(make_server(), HttpSettings())
    async with app.running():
        session, headers = await session_of(app)
        stream = session.standalone
        stream.attach(object())  # stands for a connection that does not read
        stream.number_events()
        for number in (1, 2, 3):
            stream.put(b'{"n":%d}' % number)
        asked = await listening(app, {**headers, "last-event-id": "g_1"})
        stream.put(b'{"n":4}')
        await turns()
        ids = [line for line in asked.body.decode().split("\n") if line.startswith("id: ")]
        assert ids == ["id: g_2", "id: g_3", "id: g_4"]
        assert "retry" not in asked.body.decode()
        await left(asked)


async def test_a_new_connection_replaces_the_previous_connection_of_a_stream() -> None:
    app = HttpApp(make_server(), HttpSettings(retry=2.5))
    async with app.running():
        session, headers = await session_of(app)
        first = await listening(app, headers)
        assert first.body == b"id: g_0\nretry: 2500\ndata: \n\n"
        second = await listening(app, headers)
        assert first.task.done()
        session.standalone.put(b"{}")
        await turns()
        assert b"id: g_1\ndata: {}" in second.body
        assert b"g_1" not in first.body
        await left(second)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        ("2025-11-25", b"id: g_0\nretry: 1000\ndata: \n\nid: g_1\ndata: {}\n\n"),
        ("2025-06-18", b"id: g_1\ndata: {}\n\n"),
        ("2025-03-26", b"id: g_1\ndata: {}\n\n"),
        ("2024-11-05", b"data: {}\n\n"),
    ],
)
async def test_event_ids_and_priming_depend_on_the_revision(version: str, body: bytes) -> None:
    app = HttpApp(make_server(), HttpSettings())
    async with app.running():
        session, headers = await session_of(app, version)
        asked = await listening(app, headers)
        session.standalone.put(b"{}")
        await turns()
        assert asked.body == body
        await left(asked)


@pytest.mark.parametrize(
    ("method", "headers", "status", "text"),
    [
        ("GET", {}, 405, "GET requires an Mcp-Session-Id header"),
        ("GET", {"mcp-session-id": "x"}, 404, "Unknown session: send initialize to open a new one"),
        ("GET", {"mcp-session-id": "x", "accept": "a/b"}, 406, "Accept: text/event-stream"),
        ("DELETE", {}, 405, "DELETE requires an Mcp-Session-Id header"),
        (
            "DELETE",
            {"mcp-session-id": "x"},
            404,
            "Unknown session: send initialize to open a new one",
        ),
    ],
)
async def test_requests_without_a_session_are_refused(
    method: str, headers: Any, status: int, text: str
) -> None:
    app = HttpApp(make_server(), HttpSettings())
    async with app.running():
        asked = await AsgiRequest(app, headers=headers, method=method)
        assert asked.status == status
        assert text in asked.body.decode()
        assert asked.headers.get("allow") == ("POST" if status == 405 else None)


async def test_a_session_is_terminated_by_its_client() -> None:
    app = HttpApp(make_server(), HttpSettings())
    async with app.running():
        _, headers = await session_of(app)
        stream = await listening(app, headers)
        assert (await AsgiRequest(app, headers=headers, method="DELETE")).status == 200
        await stream
        assert (await AsgiRequest(app, headers=headers, method="DELETE")).status == 404
        assert len(app.edge.sessions) == 0


async def test_a_session_opened_in_another_process_can_be_terminated() -> None:
    store = MemorySessionStore()
    settings = HttpSettings(session_store=store)
    first = HttpApp(make_server(), settings)
    async with first.running():
        _, headers = await session_of(first)
    assert len(store) == 1
    second = HttpApp(make_server(), settings)
    async with second.running():
        assert (await AsgiRequest(second, headers=headers, method="DELETE")).status == 200
        assert len(store) == 0
        assert (await AsgiRequest(second, headers=headers, method="DELETE")).status == 404
