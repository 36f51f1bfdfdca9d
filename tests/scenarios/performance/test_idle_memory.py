"""Memory use of idle sessions and listen streams."""

import asyncio
import gc
import json
import sys
import tracemalloc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.server.http_app.app import HttpApp
from tests.support.raw_server_client import META

COUNT = 200
HEADERS = [
    (b"host", b"localhost"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
]
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "c", "version": "1"},
}


class Call:
    """A POST to an ASGI application; `sent` contains the response events."""

    def __init__(self, app: HttpApp, body: dict[str, Any], *more: tuple[bytes, bytes]) -> None:
        self._body = json.dumps({"jsonrpc": "2.0", **body}).encode()
        self._read = False
        self.sent: list[Any] = []
        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [*HEADERS, *more]}
        self.done = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        if self._read:
            await asyncio.get_running_loop().create_future()
        self._read = True
        return {"type": "http.request", "body": self._body}

    async def _send(self, event: Any) -> None:
        self.sent.append(event)


async def open_session(app: HttpApp) -> None:
    call = Call(app, {"id": 1, "method": "initialize", "params": INITIALIZE})
    await call.done
    session = dict(call.sent[0]["headers"])[b"mcp-session-id"]
    ready = {"method": "notifications/initialized"}
    await Call(app, ready, (b"mcp-session-id", session)).done


async def end_sessions(app: HttpApp) -> None:
    for session in list(app.edge.sessions._sessions.values()):
        await app.edge.sessions.end(session)


async def listen(app: HttpApp) -> None:
    params = {"notifications": {"toolsListChanged": True}, "_meta": META}
    call = Call(
        app,
        {"id": 1, "method": "subscriptions/listen", "params": params},
        (b"mcp-protocol-version", b"2026-07-28"),
        (b"mcp-method", b"subscriptions/listen"),
    )
    while len(call.sent) < 2:  # the response head and the acknowledgement
        await asyncio.sleep(0)


async def bytes_of(app: HttpApp, make: Callable[[HttpApp], Awaitable[None]]) -> float:
    for _ in range(10):
        await make(app)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(COUNT):
            await make(app)
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / COUNT
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer needs memory of its own")
@pytest.mark.parametrize(("make", "kib"), [(open_session, 10), (listen, 9)])
async def test_idle_sessions_and_streams_use_only_a_few_kilobytes(
    make: Callable[[HttpApp], Awaitable[None]], kib: int
) -> None:
    """The HTTP server's connection is not counted; a stream includes its `Call` objects."""
    app = MCPServer("idle").create_http_app(max_sessions_per_client=1000)
    async with asyncio.timeout(60), app.running():
        assert await bytes_of(app, make) < kib * 1024
        await app.end_streams()


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer needs memory of its own")
@pytest.mark.parametrize(
    ("make", "end"), [(open_session, end_sessions), (listen, HttpApp.end_streams)]
)
async def test_ended_sessions_and_streams_leave_less_than_a_fifth_of_their_memory_in_use(
    make: Callable[[HttpApp], Awaitable[None]], end: Callable[[HttpApp], Awaitable[None]]
) -> None:
    """No garbage collection is needed, except for the `Call` objects of this test."""
    app = MCPServer("ended").create_http_app(max_sessions_per_client=1000)
    async with asyncio.timeout(60), app.running():
        for _ in range(10):
            await make(app)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(COUNT):
                await make(app)
            used = tracemalloc.get_traced_memory()[0] - before
            await end(app)
            for _ in range(10):  # the tasks of ended requests finish
                await asyncio.sleep(0)
            left = tracemalloc.get_traced_memory()[0] - before
            assert left < used / 5
        finally:
            tracemalloc.stop()


async def test_an_ended_session_is_freed_without_a_garbage_collection() -> None:
    app = MCPServer("ended").create_http_app()
    async with asyncio.timeout(10), app.running():
        await open_session(app)
        (session,) = app.edge.sessions._sessions.values()
        parts = [weakref.ref(part) for part in (session, session.served)]
        gc.collect()
        gc.disable()
        try:
            await app.edge.sessions.end(session)
            del session
            await asyncio.sleep(0)
            assert [part() for part in parts] == [None, None]
        finally:
            gc.enable()
