"""Sessions that outlive the process in which they were opened."""

import asyncio
import contextlib
import json
import os
import sqlite3
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead import MCPClient, MCPClientConfig, MCPServer
from fairlead.gateway import Relay
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.limits import STORED_SESSIONS
from fairlead.transport.http.server.sessions.session_store import (
    MemorySessionStore,
    SessionStore,
    StoredSession,
    key_of,
)
from fairlead.transport.http.server.sessions.sqlite_session_store import SqliteSessionStore
from tests.support.http_server import (
    LIMIT,
    Session,
    Web,
    call,
    introduction,
    make_server,
    next_message,
    serving,
)

STORES = ["memory", "sqlite"]
Make = Callable[..., SessionStore]


@pytest.fixture(params=STORES)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return a session store; for SQLite, every call opens the same file."""
    one: list[MemorySessionStore] = []

    def make(**options: Any) -> SessionStore:
        if request.param == "sqlite":
            store = SqliteSessionStore(tmp_path / "deep" / "sessions.db", **options)
            request.addfinalizer(store.close)
            return store
        one[:] = one or [MemorySessionStore(**options)]
        return one[0]

    return make


def stored(key: str, used: float, principal: str | None = None) -> StoredSession:
    return StoredSession(
        key=key, principal=principal, opening=b"{}", revision="2025-11-25", created=used, used=used
    )


@pytest.mark.covers("GTW-13")
async def test_a_store_keeps_the_sessions_in_use_within_its_limit(make: Make) -> None:
    store = make(max_sessions=3)
    for number in range(3):
        await store.save(stored(f"k{number}", 100.0 + number, "ann"))
    await store.touch(["k0", "unknown"], 200.0)
    await store.save(stored("k3", 150.0))
    assert await store.load("k1") is None  # the least recently used session
    kept = await store.load("k0")
    assert kept == StoredSession(
        key="k0",
        principal="ann",
        opening=b"{}",
        revision="2025-11-25",
        created=100.0,
        used=200.0,
    )
    assert await store.expire(160.0) == 2
    assert await store.load("k3") is None
    await store.delete("k0")
    await store.delete("k0")
    assert await store.load("k0") is None


async def test_a_deleted_session_does_not_count_towards_the_limit(make: Make) -> None:
    store = make(max_sessions=2)
    for number in range(2):
        await store.save(stored(f"k{number}", 100.0 + number))
    await store.delete("k0")
    await store.save(stored("k2", 102.0))
    await store.save(stored("k2", 103.0))  # replaces the session `k2`
    assert [await store.load(f"k{n}") is not None for n in range(3)] == [False, True, True]
    hits = STORED_SESSIONS.hits
    await store.save(stored("k3", 104.0))
    assert STORED_SESSIONS.hits > hits
    kept = [await store.load(f"k{n}") is not None for n in range(4)]
    assert kept == [False, False, True, True]


@pytest.mark.covers("GTW-13")
async def test_the_session_file_is_private_and_contains_no_session_ids(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = SqliteSessionStore(path)
    async with serving(make_server(), session_store=store) as web:
        session = await web.initialize()
        secret = session.headers["Mcp-Session-Id"].encode()
    store.close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert secret not in b"".join(one.read_bytes() for one in tmp_path.iterdir())
    with sqlite3.connect(path) as file:
        [(opening,)] = file.execute("SELECT opening FROM sessions").fetchall()
    assert json.loads(opening)["method"] == "initialize"


def moved(session: Session, web: Web) -> Session:
    """Return a client for the same session at the new server."""
    return Session(web, session.headers["Mcp-Session-Id"], "2025-11-25")


@pytest.mark.covers("GTW-13")
async def test_a_session_continues_after_a_restart(make: Make) -> None:
    async with serving(make_server(), session_store=make()) as web:
        session = await web.initialize(elicitation={})
        assert (await session.call("add", {"a": 1, "b": 2})).text == "3"
    async with serving(make_server(), session_store=make()) as web:
        again = moved(session, web)
        several = [again.call("add", {"a": n, "b": 1}, n) for n in range(2, 12)]
        answers = await asyncio.gather(*several)  # restored once
        assert [answer.text for answer in answers] == [str(n + 1) for n in range(2, 12)]
        # Streams and server requests work in the restored session.
        async with again.stream() as listening:
            assert listening.status == 200
        async with again.stream(call("name", request_id=30)) as answer:
            question = await next_message(answer)
            assert question["method"] == "elicitation/create"
            said = {"action": "accept", "content": {"value": "Ada"}}
            told = {"jsonrpc": "2.0", "id": question["id"], "result": said}
            assert (await again.post(told)).status == 202
            assert "Ada" in json.dumps(await next_message(answer))
    async with serving(make_server(), session_store=make()) as web:
        again = moved(session, web)
        assert (await again.call("add", {"a": 1, "b": 2})).text == "3"
        assert (await web.http.delete(web.url, headers=again.headers)).status == 200
        assert (await again.call("add", {"a": 1, "b": 2})).status == 404
    async with serving(make_server(), session_store=make()) as web:
        assert (await moved(session, web).call("add", {"a": 1, "b": 2})).status == 404


@pytest.mark.covers("GTW-13")
async def test_a_terminated_session_is_not_restored(make: Make) -> None:
    async with serving(make_server(), session_store=make()) as web:
        ended, kept = await web.initialize(), await web.initialize()
        await web.http.delete(web.url, headers=ended.headers)
    async with serving(make_server(), session_store=make()) as web:
        assert (await moved(ended, web).call("add")).status == 404
        # A client may terminate a session that was not restored.
        gone = await web.http.delete(web.url, headers=moved(kept, web).headers)
        assert gone.status == 200
        assert (await moved(kept, web).call("add")).status == 404


@pytest.mark.covers("GTW-13")
async def test_a_stored_session_is_bound_to_its_principal_path_and_expiry_time(make: Make) -> None:
    tokens = {"ann-token": "ann", "bob-token": "bob"}
    options: dict[str, Any] = {"verify_token": tokens.get}
    bob = {"Authorization": "Bearer bob-token"}
    ann = {"Authorization": "Bearer ann-token"}
    async with serving(make_server(), session_store=make(), **options) as web:
        answer = await web.post(introduction(), ann)
        name = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
    async with serving(make_server(), session_store=make(), **options) as web:
        asked = call("add", {"a": 1, "b": 2})
        assert (await web.post(asked, {**name, **bob})).status == 404
        assert (await web.http.delete(web.url, headers={**name, **bob})).status == 404
        assert (await web.post(asked, {**name, **ann})).text == "3"
    async with serving(make_server(), session_store=make(), path="/other", **options) as web:
        assert (await web.post(asked, {**name, **ann})).status == 404
    async with serving(make_server(), session_store=make(), session_kept=0.01, **options) as web:
        await asyncio.sleep(0.02)
        assert (await web.post(asked, {**name, **ann})).status == 404


async def test_a_session_ends_if_the_new_server_negotiates_another_revision(make: Make) -> None:
    store = make()
    async with serving(make_server(), session_store=store) as web:
        session = await web.initialize()
        name = session.headers["Mcp-Session-Id"]
        kept = await store.load(key_of("/mcp", name))
        assert kept is not None
    older = StoredSession(
        key=kept.key,
        principal=None,
        opening=kept.opening,
        revision="2024-11-05",
        created=kept.created,
        used=time.time(),
    )
    await store.save(older)
    async with serving(make_server(), session_store=make()) as web:
        assert (await moved(session, web).call("add", {"a": 1, "b": 2})).status == 404
        assert await store.load(kept.key) is None


async def test_a_restart_during_a_restoration_keeps_the_stored_session(make: Make) -> None:
    begun = asyncio.Event()

    async def silent(exchange: Exchange, proceed: Proceed) -> Answer:
        begun.set()
        await asyncio.Event().wait()
        return await proceed(exchange)

    async with serving(make_server(), session_store=make()) as web:
        session = await web.initialize()
    busy = MCPServer(make_server().config, interceptors=[silent])
    async with serving(busy, session_store=make()) as web:
        asked = asyncio.create_task(moved(session, web).call("add", {"a": 1, "b": 2}))
        await begun.wait()
    with contextlib.suppress(aiohttp.ClientError):
        assert (await asked).status in (404, 503)
    async with serving(make_server(), session_store=make()) as web:
        assert (await moved(session, web).call("add", {"a": 1, "b": 2})).text == "3"


async def test_an_invalid_stored_session_is_not_restored(make: Make) -> None:
    store = make()
    for opening in (b"no message", b'{"jsonrpc":"2.0","method":"notifications/x"}'):
        odd = StoredSession(
            key=key_of("/mcp", "known"),
            principal=None,
            opening=opening,
            revision="2025-11-25",
            created=time.time(),
            used=time.time(),
        )
        await store.save(odd)
        async with serving(make_server(), session_store=make()) as web:
            assert (await web.post(call("add"), {"Mcp-Session-Id": "known"})).status == 404


class Broken(MemorySessionStore):
    async def save(self, *_: object) -> None:
        raise OSError("no space left on device")

    load = touch = delete = expire = save  # type: ignore[assignment]


async def test_a_failing_store_does_not_affect_clients(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(make_server(), session_store=Broken()) as web:
        session = await web.initialize()
        assert (await session.call("add", {"a": 1, "b": 2})).text == "3"
        assert (await web.post(call("add"), {"Mcp-Session-Id": "guessed"})).status == 404
    assert "the session store failed: OSError: no space left on device" in caplog.text


@pytest.mark.covers("GTW-13", "GTW-05")
async def test_a_client_keeps_its_session_when_a_relay_is_restarted(tmp_path: Path) -> None:
    """The client keeps its session; the relay opens a new one at the server."""
    port = 0
    handshake = MCPClientConfig(protocol_version="2025-11-25")
    client: MCPClient | None = None
    store = SqliteSessionStore(tmp_path / "sessions.db")
    names: list[str | None] = []
    running: asyncio.Task[None] | None = None
    try:
        for _ in range(2):
            relay = Relay(make_server())
            ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            run = relay.run_http(port=port, started=ready.set_result, session_store=store)
            running = asyncio.create_task(run)
            async with asyncio.timeout(LIMIT):
                url = await ready
                port = int(url.split(":")[2].split("/")[0])
                client = client or await MCPClient.connect_http(url, handshake)
                assert (await client.call("add", {"a": 1, "b": 2})).text == "3"
                names.append(client.transport.peer.channel.session_id)  # type: ignore[union-attr]
            running.cancel()
            await asyncio.wait((running,))
    finally:
        if running is not None:
            running.cancel()
            await asyncio.wait((running,))
        if client is not None:
            await client.close()
        store.close()
    first, second = names
    assert first is not None
    assert first == second
