"""A client cannot exhaust the sessions, sockets, streams or memory that other clients may use."""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from fairlead import MCPServer
from fairlead.limits import Limit
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.identity.client_key import client_key, network_of
from fairlead.transport.client_shares import ClientShares, NoShareLeft
from fairlead.transport.http.server.sessions.event_store import MemoryEventStore
from fairlead.transport.http.server.sessions.session_store import MemorySessionStore, StoredSession
from fairlead.transport.http.server.sessions.sqlite_session_store import SqliteSessionStore

LIMIT = 10.0
OPENING = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    },
}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
# Share limits, compared with a model


class Model:
    """A model of the items of several clients that checks their shares."""

    def __init__(self, total: int, per_client: int) -> None:
        self.total, self.per_client = total, per_client
        self.held: dict[
            int, tuple[str, bool]
        ] = {}  # maps each item to its owner and whether it is idle
        self.limit = Limit(total, "items", "client", "")
        self.shares: ClientShares[int] = ClientShares(
            total, per_client, self.limit, is_idle=lambda item: self.held[item][1], used=float
        )
        self.last = 0

    def counts(self) -> Counter[str]:
        return Counter(owner for owner, _ in self.held.values())

    def open(self, client: str, idle: bool) -> None:
        counts = self.counts()
        own, full = counts[client], len(self.held) >= self.total
        fair = max(1, self.total // len({*counts, client}))
        try:
            victim = self.shares.make_room(client)
        except NoShareLeft:
            assert full or own >= self.per_client
            # refusal below the share: no other client may exceed its share either
            if own < min(fair, self.per_client):
                assert max(counts.values()) <= fair
            return
        if victim is not None:
            owner, was_idle = self.held[victim]
            assert owner == client or counts[owner] >= fair
            assert was_idle or counts[owner] > fair > own
            self.shares.discard(victim)
            del self.held[victim]
        self.last += 1
        self.shares.add(client, self.last)
        self.held[self.last] = client, idle

    def close(self, number: int) -> None:
        if self.held:
            item = sorted(self.held)[number % len(self.held)]
            self.shares.discard(item)
            del self.held[item]

    def check(self) -> None:
        counts = self.counts()
        assert len(self.shares) == len(self.held) <= self.total
        assert all(count <= self.per_client for count in counts.values())
        assert all(self.shares.count(client) == counts[client] for client in "abcd")
        largest = self.shares.largest()
        assert largest is None or counts[self.held[largest][0]] == max(counts.values())


@given(
    total=st.integers(1, 12),
    per_client=st.integers(1, 12),
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from("aaaabcd"), st.booleans()),
            st.integers(0, 100),
        ),
        max_size=60,
    ),
)
def test_a_client_below_its_share_can_add_items_and_keeps_them(
    total: int, per_client: int, steps: list[Any]
) -> None:
    model = Model(total, per_client)
    for step in steps:
        if isinstance(step, int):
            model.close(step)
        else:
            model.open(*step)
        model.check()


def test_an_idle_item_is_found_behind_many_items_in_use() -> None:
    model = Model(200, 200)
    for number in range(200):
        model.open("a", idle=number == 150)
    for _ in range(8):  # each attempt examines a limited number of items
        with suppress(NoShareLeft):
            victim = model.shares.make_room("a")
            assert victim == 151
            return
    pytest.fail("the idle item was not found")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("[2001:db8::1]", "2001:db8::2", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("a", "b", False),
    ],
)
def test_an_anonymous_client_is_identified_by_its_network(one: str, other: str, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same
    assert (client_key(ANONYMOUS, one) == client_key(ANONYMOUS, other)) is same
    assert client_key("ann", one) == client_key("ann", other)
    assert client_key(one, None) != client_key(ANONYMOUS, one)


# Over real sockets


class Client:
    """A client with a token or a local address."""

    def __init__(self, url: str, token: str = "", address: str = "127.0.0.1") -> None:
        self.url = url
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.address = address

    async def __aenter__(self) -> "Client":
        connector = aiohttp.TCPConnector(local_addr=(self.address, 0), limit=0)
        self.http = aiohttp.ClientSession(connector=connector, headers=self.headers)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.http.close()

    async def post(self, message: Any, session: str | None = None) -> aiohttp.ClientResponse:
        named = {} if session is None else {"Mcp-Session-Id": session}
        async with self.http.post(self.url, json=message, headers=named) as response:
            await response.read()
            return response

    async def open(self) -> str | None:
        """Open a session and return its id, or None if it is refused."""
        return (await self.post(OPENING)).headers.get("mcp-session-id")

    async def alive(self, sessions: list[str | None]) -> int:
        return sum([(await self.post(PING, one or "?")).status == 200 for one in sessions])

    async def listen(self, path: str = "/mcp", session: str | None = None) -> Any:
        """Open a stream with GET."""
        headers = {"Accept": "text/event-stream"}
        if session is not None:
            headers["Mcp-Session-Id"] = session
        return await self.http.get(self.url.replace("/mcp", path), headers=headers)


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[str]:
    server = MCPServer("s", rate_limit_rate=0)
    server.tool("t")(lambda: "x")
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_http(port=0, started=ready.set_result, **options))
    await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield ready.result()
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@asynccontextmanager
async def two_clients(kind: str, **options: Any) -> AsyncIterator[tuple[Client, Client]]:
    """Yield a greedy and a modest client: two principals, or two addresses without a token."""
    names = {"greedy": "ann", "modest": "bob"}
    if kind == "principals":
        options["verify_token"] = names.get
    async with asyncio.timeout(LIMIT), serving(**options) as url:
        named = kind == "principals"
        greedy = Client(url, "greedy") if named else Client(url, address="127.0.0.2")
        modest = Client(url, "modest") if named else Client(url, address="127.0.0.3")
        async with greedy, modest:
            yield greedy, modest


KINDS = pytest.mark.parametrize("kind", ["principals", "addresses"])


@KINDS
async def test_excess_sessions_of_a_client_replace_its_own_sessions(kind: str) -> None:
    async with two_clients(kind, max_sessions=10) as (greedy, modest):
        before = [await modest.open() for _ in range(2)]
        opened = [await greedy.open() for _ in range(30)]
        after = [await modest.open() for _ in range(3)]
        assert await modest.alive(before + after) == 5
        assert await greedy.alive(opened) == 5
        assert await greedy.alive(opened[-5:]) == 5


@KINDS
async def test_a_client_has_no_more_sessions_than_its_limit(kind: str) -> None:
    async with two_clients(kind, max_sessions_per_client=3) as (greedy, modest):
        opened = [await greedy.open() for _ in range(9)]
        assert await greedy.alive(opened) == 3
        assert await modest.alive([await modest.open() for _ in range(3)]) == 3


@KINDS
async def test_active_sessions_of_one_client_do_not_exclude_other_clients(kind: str) -> None:
    async with two_clients(kind, max_sessions=6) as (greedy, modest):
        opened = [await greedy.open() for _ in range(6)]
        streams = [await greedy.listen(session=one) for one in opened]
        assert all(stream.status == 200 for stream in streams)
        # refused, because all sessions of this client are in use
        assert await greedy.open() is None
        mine = [await modest.open() for _ in range(3)]
        assert None not in mine
        assert await modest.alive(mine) == 3
        assert await greedy.alive(opened) == 3
        for stream in streams:
            stream.close()


@KINDS
async def test_http_sse_streams_are_shared_fairly_between_clients(kind: str) -> None:
    async with two_clients(kind, max_sessions=6) as (greedy, modest):
        streams = [await greedy.listen("/sse") for _ in range(8)]
        assert [stream.status for stream in streams] == [200] * 6 + [503] * 2
        mine = [await modest.listen("/sse") for _ in range(4)]
        assert [stream.status for stream in mine] == [200] * 3 + [503]
        for stream in streams[:3]:
            await stream.content.read()  # read until the server ends the stream
        for stream in streams + mine:
            stream.close()


@KINDS
async def test_websockets_are_shared_fairly_between_clients(kind: str) -> None:
    async with two_clients(kind, max_sockets=6) as (greedy, modest), AsyncExitStack() as stack:

        async def open_socket(client: Client) -> Any:
            url = client.url.replace("http", "ws", 1).replace("/mcp", "/ws")
            headers, place = client.headers, (client.address, 0)
            return await stack.enter_async_context(
                connect(url, additional_headers=headers, local_addr=place)
            )

        async def serves(socket: Any) -> bool:
            with suppress(ConnectionClosed):
                await socket.send(json.dumps({**PING}))
                return "result" in json.loads(await socket.recv())
            return False

        many = [await open_socket(greedy) for _ in range(7)]
        assert [await serves(one) for one in many] == [True] * 6 + [False]
        few = [await open_socket(modest) for _ in range(4)]
        assert [await serves(one) for one in few] == [True] * 3 + [False]
        assert [await serves(one) for one in many] == [False] * 3 + [True] * 3 + [False]
        assert many[0].close_code == 1013


# Stored events and sessions


def test_stored_events_of_one_client_do_not_evict_events_of_another() -> None:
    owners = {"s": "modest"}
    store = MemoryEventStore(max_bytes=1000, max_total=4000, owner_of=lambda s: owners.get(s, "?"))
    store.append("s", "p1", 1, b"x" * 300)
    for number in range(100):
        store.append(f"g{number}", "p1", 1, b"x" * 500)
    assert store.size <= 4000
    assert asyncio.run(store.after("s", "p1", 0)) == [(1, b"x" * 300)]
    assert asyncio.run(store.after("g99", "p1", 0)) == [(1, b"x" * 500)]
    assert asyncio.run(store.after("g0", "p1", 0)) is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(1, 900))))
def test_the_event_store_stays_within_its_limits(steps: list[tuple[str, int, int]]) -> None:
    store = MemoryEventStore(max_bytes=1000, max_total=3000, owner_of=lambda session: session[0])
    numbers: Counter[str] = Counter()
    for owner, session, size in steps:
        name = f"{owner}{session}"
        numbers[name] += 1
        store.append(name, "p", numbers[name], b"x" * size)
        assert store.size <= 3000
    for name in numbers:
        store.forget(name)
    assert store.size == 0
    assert not store._owned


def stored(client: str, number: int) -> StoredSession:
    return StoredSession(
        key=f"{client}{number}",
        principal=None,
        opening=b"{}",
        revision="2025-11-25",
        created=number,
        used=number,
        client=client,
    )


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_stored_sessions_of_one_client_do_not_evict_those_of_another(
    kind: str, tmp_path: Path
) -> None:
    store: Any = MemorySessionStore(max_sessions=5)
    if kind == "sqlite":
        store = SqliteSessionStore(tmp_path / "s.db", max_sessions=5)
    for number in range(2):
        await store.save(stored("modest", number))
    for number in range(10, 30):
        await store.save(stored("greedy", number))
    kept = [number for number in range(10, 30) if await store.load(f"greedy{number}")]
    assert kept == [27, 28, 29]
    assert [await store.load(f"modest{number}") for number in range(2)] == [
        stored("modest", number) for number in range(2)
    ]
    if kind == "sqlite":
        store.close()


async def test_a_session_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as file:
        file.execute(
            "CREATE TABLE sessions (key TEXT PRIMARY KEY, principal TEXT, opening BLOB NOT NULL,"
            " revision TEXT NOT NULL, created REAL NOT NULL, used REAL NOT NULL) WITHOUT ROWID"
        )
        file.execute("INSERT INTO sessions VALUES ('k', NULL, x'7b7d', '2025-11-25', 1, 1)")
    file.close()
    store = SqliteSessionStore(path)
    found = await store.load("k")
    assert found is not None
    assert (found.principal, found.client) == (None, "")
    await store.save(stored("ann", 1))
    assert await store.load("ann1") == stored("ann", 1)
    store.close()
