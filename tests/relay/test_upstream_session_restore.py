"""Restoring sessions whose connection to the server was lost."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec import Raw

from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import ChannelClosed, ConnectFailed, RequestTimeout, RpcError
from fairlead.gateway import Relay
from fairlead.protocol.conversation.conversation import Agreement
from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from fairlead.relay.upstream_session_restore import UpstreamSessionRestorer
from fairlead.upstream.memory.server_memory import ServerFacts
from tests.support.gateway_servers import serving, until
from tests.support.raw_relay import HANDSHAKE, LIMIT, scene
from tests.support.scripted_stdio_server import heard, program
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime


async def test_log_level_and_subscriptions_are_restored_after_a_restart_of_the_server() -> None:
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        await client.answer_to(client.ask("logging/setLevel", {"level": "error"}))
        await client.answer_to(client.ask("resources/subscribe", {"uri": "x:1"}))
        await server.close()
        calls = [client.ask("tools/list") for _ in range(5)]
        server = await place.server()
        for _ in calls:
            server.reply(await server.method("tools/list"), {"tools": []})
        for call in calls:
            assert "result" in await client.answer_to(call)
        methods = [m["method"] for m in server.seen]
        assert methods.count("initialize") == 1
        assert methods.count("logging/setLevel") == 1
        assert methods.count("resources/subscribe") == 1
        assert len(place.servers) == 2  # all calls share the new connection
        told = [m["method"] for m in client.skipped]
        assert told.count("notifications/tools/list_changed") == 1
        assert told.count("notifications/resources/updated") == 1


async def test_concurrent_calls_after_a_loss_open_one_connection_for_a_session() -> None:
    async with scene(share="session") as place:
        client = await place.session()
        server = await place.server()
        await server.close()
        calls = [client.ask("tools/list") for _ in range(8)]
        server = await place.server()
        for _ in calls:
            server.reply(await server.method("tools/list"), {"tools": []})
        for call in calls:
            assert "result" in await client.answer_to(call)
        assert len(place.servers) == 2
        assert len(place.relay.pool.connections) == 1


@pytest.mark.parametrize("share", ["alike", "session"])
async def test_a_session_without_a_stream_releases_its_idle_connection(
    share: Any, tmp_path: Path
) -> None:
    """The session is kept, and the next request of the client opens a new connection."""
    command = program(tmp_path, SERVER, stateless=False)
    entry = {"command": command[0], "args": command[1:]}
    relay = Relay(entry, "one", share=share, idle_close=0.2, idle_close_used=0.2)
    async with asyncio.timeout(LIMIT * 4), serving(relay) as url, aiohttp.ClientSession() as web:
        opened = await post(web, url, {}, "initialize", INITIALIZE)
        name = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        assert (await (await post(web, url, name, "tools/call", {"name": "t"})).json())["result"]
        await until(lambda: not relay.pool.connections)
        assert (await (await post(web, url, name, "tools/call", {"name": "t"})).json())["result"]
        assert len(heard(tmp_path, "initialize")) == 2
        headers = {**HEADERS, **name, "Accept": "text/event-stream"}
        # The connection stays open for a client with a stream, which can receive notifications.
        async with web.get(url, headers=headers) as stream:
            assert stream.status == 200
            await post(web, url, name, "tools/call", {"name": "t"})
            [connection] = relay.pool.connections
            assert not connection.abandoned
        await until(lambda: not relay.pool.connections)


SERVER = """
for message in requests():
    if message.get("method") == "tools/call":
        answer(message, {"content": text("done")})
    elif "id" in message:
        refuse(message)
"""
INITIALIZE = {
    "protocolVersion": HANDSHAKE,
    "capabilities": {},
    "clientInfo": {"name": "c", "version": "1"},
}
HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": HANDSHAKE}


async def post(
    web: aiohttp.ClientSession, url: str, more: dict[str, str], method: str, params: Any
) -> aiohttp.ClientResponse:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await web.post(url, json=body, headers={**HEADERS, **more})


CHANGED = ["notifications/tools/list_changed", *["notifications/resources/updated"] * 2]


class FakeConnection:
    """Fake connection that records requests to its server."""

    def __init__(self, *, stateless: bool = False) -> None:
        self.name, self.alive, self.borrowed, self.stateless = "raw", True, False, stateless
        self.peer = self
        self.uris: dict[str, set[object]] = {}
        self.sessions: dict[Any, None] = {}
        self.asked: list[Any] = []
        self.activated = 0
        self.refuses = False
        self.waits = 0.0
        self.error: Exception | None = None
        self.roots_answered = asyncio.Event()
        self.agreement = Agreement(
            revision=NEWEST_HANDSHAKE, capabilities=b'{"tools":{"listChanged":true}}'
        )

    def activate(self) -> None:
        self.activated += 1

    async def request(self, method: str, params: Any) -> None:
        self.asked.append((method, *params.values()))
        if self.error is not None:
            raise self.error
        if self.refuses:
            raise RpcError(5, "no")
        if self.waits:
            await asyncio.sleep(self.waits)
            raise RequestTimeout(self.waits, method)


class FakeSession:
    restores_default = True

    def __init__(self, connection: Any = None) -> None:
        self.connection = connection
        self.introduction: Raw | None = Raw(b"{}")
        self.joining = 0
        self.opening = asyncio.Lock()
        self.level: str | None = "debug"
        self.uris = ["a:1", "a:2"]
        self.told: list[str] = []

    def attached(self) -> None:
        self.told.append("attached")

    def tell(self, note: Any) -> None:
        self.told.append(note.method)


class Place:
    """Fake session whose connection may be lost."""

    def __init__(self, connection: Any = None, *, stateless: bool = False) -> None:
        self.session = FakeSession(connection)
        self.new = FakeConnection(stateless=stateless)
        self.opened = 0
        self.bridged: list[str] = []
        self.joining: list[int] = []
        self.left: list[Any] = []
        self.error: Exception | None = None
        self.facts = ServerFacts()
        self.settings = UpstreamSettings()
        self.capabilities = b"{}"
        pool: Any = self
        self.restorer = UpstreamSessionRestorer(pool, lambda connection: self)  # type: ignore[arg-type,return-value]

    async def for_session(self, session: Any, introduction: Raw, caller: Any) -> Any:
        self.opened += 1
        self.joining.append(session.joining)
        await asyncio.sleep(0)
        self.new.sessions[session] = None
        return self.new

    async def another_for_session(self, session: Any, introduction: Raw, caller: Any) -> Any:
        assert session.opening.locked()  # other requests of the session have to wait
        self.opened += 1
        if self.error is not None:
            raise self.error
        self.new.sessions[session] = None
        return self.new

    async def leave(self, session: Any, connection: Any) -> None:
        self.left.append(connection)

    async def move(self) -> Any:
        session: Any = self.session
        asked = exchange(stateless=False, capabilities=self.capabilities)
        return await self.restorer.move(session, asked.caller)

    async def joined(self) -> None:
        self.bridged.append("joined")

    async def follow(self) -> None:
        self.bridged.append("follow")

    async def connection(self) -> Any:
        session: Any = self.session
        asked = exchange(stateless=False, capabilities=self.capabilities)
        return await self.restorer.connection_of(session, asked.caller)


async def test_an_open_connection_is_used_without_reconnecting() -> None:
    place = Place(connection := FakeConnection())
    assert await place.connection() is connection
    assert (place.opened, connection.activated, place.session.told) == (0, 1, [])


async def test_concurrent_requests_get_one_new_connection_with_the_restored_state() -> None:
    lost = FakeConnection()
    lost.alive = False
    place = Place(lost)
    found = await asyncio.gather(*(place.connection() for _ in range(3)))
    assert found == [place.new] * 3
    assert (place.opened, place.session.joining) == (1, 0)
    assert place.joining[0] > 0
    assert place.new.asked == [
        ("logging/setLevel", "debug"),
        ("resources/subscribe", "a:1"),
        ("resources/subscribe", "a:2"),
    ]
    assert place.new.uris == {"a:1": {place.session}, "a:2": {place.session}}
    assert place.session.told == ["attached", *CHANGED]


@pytest.mark.parametrize(
    ("level", "others", "requested"),
    [
        ("error", ["info", None], "info"),
        ("info", ["error", "invented"], "info"),
        ("invented", [], "invented"),
        (None, ["info"], None),
    ],
)
async def test_the_server_gets_the_lowest_log_level_of_all_sessions_on_a_connection(
    level: str | None, others: list[str | None], requested: str | None
) -> None:
    place = Place()
    place.session.level, place.session.uris = level, []
    for other in others:
        session = FakeSession(place.new)
        session.level = other
        place.new.sessions[session] = None
    await place.connection()
    asked = [] if requested is None else [("logging/setLevel", requested)]
    assert place.new.asked == asked


async def test_a_request_does_not_overtake_earlier_requests_that_wait_for_a_connection() -> None:
    place = Place(connection := FakeConnection())
    place.session.joining = 1
    async with place.session.opening:
        waiting = asyncio.create_task(place.connection())
        await asyncio.sleep(0)
        assert not waiting.done()
    assert await waiting is connection
    assert place.session.joining == 1


async def test_a_server_that_rejects_restored_subscriptions_is_still_used() -> None:
    place = Place()
    place.session.level = None
    place.new.refuses = True
    assert await place.connection() is place.new
    # The rejection of one subscription does not affect the other.
    assert place.new.asked == [("resources/subscribe", "a:1"), ("resources/subscribe", "a:2")]
    assert place.session.told == ["attached", *CHANGED]


@pytest.mark.parametrize("limit", [3.0, 0.0])
async def test_a_server_that_does_not_answer_restored_subscriptions_is_still_used(
    virtual_time: VirtualTime, limit: float, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place()
    place.settings = UpstreamSettings(connect_timeout=limit)
    place.new.waits, begun = 7.0, virtual_time.now
    assert await place.connection() is place.new
    # Without a time limit for connecting, the limit of each request applies.
    assert virtual_time.now - begun == pytest.approx(limit or 7.0)
    assert place.new.uris == {"a:1": {place.session}, "a:2": {place.session}}
    assert place.session.told == ["attached", *CHANGED]
    assert "raw: cannot restore the log level and all subscriptions: Request timeout" in caplog.text


async def test_a_loss_while_subscriptions_are_restored_is_raised() -> None:
    place = Place()
    place.new.error = ChannelClosed("gone")
    with pytest.raises(ChannelClosed, match="gone"):
        await place.connection()


@pytest.mark.parametrize("restores", [True, False])
async def test_only_sessions_that_restore_the_default_connection_send_their_state_again(
    restores: bool,
) -> None:
    place = Place()
    place.new.borrowed = True
    place.session.restores_default = restores
    assert await place.connection() is place.new
    assert len(place.new.asked) == (3 if restores else 0)
    assert place.session.told == (["attached", *CHANGED] if restores else [])


async def test_a_bridge_restores_the_subscriptions_at_a_stateless_server() -> None:
    place = Place(stateless=True)
    await place.connection()
    assert (place.bridged, place.new.asked) == (["joined", "follow"], [])


@pytest.mark.parametrize(
    ("about", "waited"),
    [
        ({}, 0.05),
        ({"asks_roots": True}, 2.0),
        ({"capabilities": b"{}"}, 0.0),
        ({"borrowed": True}, 0.0),
        ({"stateless": True}, 0.0),
        ({"answered": True, "asks_roots": True}, 0.0),
    ],
    ids=["unknown", "known", "no roots", "borrowed", "stateless", "answered"],
)
async def test_the_first_request_waits_a_limited_time_until_the_roots_are_sent(
    virtual_time: VirtualTime, about: dict[str, Any], waited: float
) -> None:
    place = Place(stateless=about.get("stateless", False))
    place.facts = ServerFacts(asks_roots_early=about.get("asks_roots", False))
    place.capabilities = about.get("capabilities", b'{"roots":{}}')
    place.new.borrowed = about.get("borrowed", False)
    if about.get("answered"):
        place.new.roots_answered.set()
    begun = virtual_time.now
    assert await place.connection() is place.new
    assert virtual_time.now - begun == pytest.approx(waited)


async def test_a_request_before_initialize_is_rejected() -> None:
    place = Place()
    place.session.introduction = None
    with pytest.raises(RpcError, match="Missing handshake: send initialize first") as refused:
        await place.connection()
    assert refused.value.code == -32602
    assert (place.opened, place.session.joining) == (0, 0)


async def test_a_session_is_moved_with_its_log_level_and_subscriptions() -> None:
    old = FakeConnection()
    place = Place(old)
    session = place.session
    old.uris = {"a:1": {session, "other"}, "a:2": {session, "other"}}
    assert await place.move() is place.new
    assert (session.connection, place.left) == (place.new, [old])
    assert (place.new.activated, place.opened) == (1, 1)
    assert place.new.asked == [
        ("logging/setLevel", "debug"),
        ("resources/subscribe", "a:1"),
        ("resources/subscribe", "a:2"),
    ]
    assert place.new.uris == {"a:1": {session}, "a:2": {session}}
    assert old.uris == {"a:1": {"other"}, "a:2": {"other"}}
    assert session.told == ["attached", *CHANGED]


async def test_a_session_without_a_connection_can_be_moved() -> None:
    place = Place()
    assert await place.move() is place.new
    assert (place.session.connection, place.left) == (place.new, [])


async def test_a_session_that_cannot_be_moved_keeps_its_connection() -> None:
    place = Place(connection := FakeConnection())
    connection.uris = {"a:1": {place.session}}
    place.error = ConnectFailed("no room")
    with pytest.raises(ConnectFailed, match="no room"):
        await place.move()
    assert (place.session.connection, place.left) == (connection, [])
    assert connection.uris == {"a:1": {place.session}}
    assert not place.session.opening.locked()
