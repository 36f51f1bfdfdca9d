"""Tests of the result cache: time to live and change notifications."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from fairlead import MCPClient, MCPClientConfig
from fairlead.client.api.result_cache import ResultCache
from fairlead.client.connection.era_cache import known_eras
from tests.support.scripted_stdio_server import heard, program


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


KEEPING = """
for request in requests():
    method, params = request["method"], request.get("params", {})
    kept = {"ttlMs": 60000, "cacheScope": "private"}
    if method == "tools/list":
        cursor = params.get("cursor", "1")
        more = {"nextCursor": "2"} if cursor == "1" else {}
        complete(request, tools=[{"name": "t" + cursor, "inputSchema": {}}], **kept, **more)
    elif method == "resources/read":
        ttl = 0 if params["uri"] == "memo://fresh" else 60000
        complete(request, contents=[], ttlMs=ttl, cacheScope="public")
    elif method == "tools/call":
        tell("notifications/" + params["name"], params["arguments"])
        complete(request, content=[])
"""


@pytest.mark.covers("PRO-25")
async def test_lists_and_resources_are_requested_once_until_they_change(tmp_path: Path) -> None:
    command = program(tmp_path, KEEPING, stateless=True)

    def asked() -> tuple[int, int]:
        return len(heard(tmp_path, "tools/list")), len(heard(tmp_path, "resources/read"))

    async with MCPClient.connect_stdio(command) as client:
        assert [tool.name for tool in await client.tools()] == ["t1", "t2"]
        assert len(await client.list_tools()) == 2
        await asyncio.gather(*(client.read("memo://a") for _ in range(5)))
        await client.read("memo://b")
        assert asked() == (2, 2)  # pages are cached separately
        await client.call("tools/list_changed")
        await client.tools()
        assert asked() == (4, 2)
        await client.call("resources/updated", {"uri": "memo://a"})
        await client.read("memo://a")
        await client.read("memo://b")
        assert asked() == (4, 3)
        await client.call("resources/list_changed")
        await client.read("memo://b")
        assert asked() == (4, 4)
        await client.read("memo://b", cache=False)
        await client.read("memo://fresh")
        await client.read("memo://fresh")
        assert asked() == (4, 7)
        assert (await client.discover())["supportedVersions"] == ["2026-07-28"]
    config = MCPClientConfig(cache=False)
    async with MCPClient.connect_stdio(command, config) as client:
        await client.read("memo://a")
        await client.read("memo://a")
        assert asked() == (4, 9)


class Source:
    """A source of results that responds when a test releases it."""

    def __init__(self, ttl: int = 1000) -> None:
        self.asked = 0
        self.stopped = 0
        self.gate = asyncio.Event()
        self.ttl = ttl
        self._moved = asyncio.Condition()

    async def has_asked(self, times: int) -> None:
        await self._until(lambda: self.asked == times)

    async def has_stopped(self) -> None:
        await self._until(lambda: self.stopped == 1)

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(5), self._moved:
            await self._moved.wait_for(reached)

    async def _move(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    async def fetch(self) -> Raw:
        self.asked += 1
        number = self.asked
        await self._move()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            await self._move()
            raise
        return Raw(b'{"ttlMs":%d,"n":%d}' % (self.ttl, number))


async def test_expired_results_in_the_cache_are_requested_again() -> None:
    now = [0.0]
    cache, source = ResultCache(lambda: now[0]), Source(ttl=1000)
    source.gate.set()
    for moment, asked in ((0.0, 1), (0.9, 1), (1.0, 2), (1.9, 2)):
        now[0] = moment
        await cache.get("tools/list", None, source.fetch)
        assert source.asked == asked


async def test_a_shared_read_is_cancelled_with_its_last_caller() -> None:
    cache, source = ResultCache(), Source()
    readers = [asyncio.ensure_future(cache.get("tools/list", None, source.fetch)) for _ in range(3)]
    await source.has_asked(1)
    readers[0].cancel()
    await asyncio.wait(readers[:1])
    assert (source.asked, source.stopped) == (1, 0)
    for reader in readers[1:]:
        reader.cancel()
    await asyncio.wait(readers)
    await source.has_stopped()
    assert (source.asked, source.stopped) == (1, 1)
    source.gate.set()
    await cache.get("tools/list", None, source.fetch)
    assert source.asked == 2


@pytest.mark.parametrize("change", ["told", "acted"])
async def test_a_read_that_started_before_a_change_is_not_shared(change: str) -> None:
    cache, source = ResultCache(), Source()
    early = asyncio.ensure_future(cache.get("tools/list", None, source.fetch))
    await source.has_asked(1)
    if change == "told":
        cache.heard("notifications/tools/list_changed", {})
    else:
        cache.expire_stale()
    late = asyncio.ensure_future(cache.get("tools/list", None, source.fetch))
    await source.has_asked(2)
    source.gate.set()
    assert b'"n":1' in bytes(await early)
    assert b'"n":2' in bytes(await late)
    assert b'"n":2' in bytes(await cache.get("tools/list", None, source.fetch))


async def test_a_result_that_changed_while_it_was_read_is_not_cached() -> None:
    cache, source = ResultCache(), Source()
    early = asyncio.ensure_future(cache.get("tools/list", None, source.fetch))
    await source.has_asked(1)
    cache.heard("notifications/tools/list_changed", {})
    source.gate.set()
    await early
    assert len(cache._kept) == 0
    assert b'"n":2' in bytes(await cache.get("tools/list", None, source.fetch))


async def test_a_failed_read_is_raised_to_all_callers_and_not_cached() -> None:
    cache, calls = ResultCache(), 0

    async def fail() -> Raw:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        raise OSError("gone")

    async def read() -> Raw:
        return await cache.get("tools/list", None, fail)

    results = await asyncio.gather(read(), read(), return_exceptions=True)
    assert [type(result) for result in results] == [OSError, OSError]
    assert calls == 1
    with pytest.raises(OSError, match="gone"):
        await read()
    assert calls == 2


@pytest.mark.covers("PRO-25")
@pytest.mark.parametrize("scope", ["private", "public"])
async def test_cached_results_are_not_shared_between_clients(tmp_path: Path, scope: str) -> None:
    command = program(tmp_path, KEEPING.replace('"public"', repr(scope)), stateless=True)
    # Two clients may act for two users, so they do not share cached results.
    async with (
        MCPClient.connect_stdio(command) as one,
        MCPClient.connect_stdio(command) as other,
    ):
        for client in (one, other, one, other):
            await client.read("memo://a")
        assert len(heard(tmp_path, "resources/read")) == 2


async def test_a_new_connection_has_an_empty_result_cache(tmp_path: Path) -> None:
    command = program(tmp_path, KEEPING, stateless=True)
    config = MCPClientConfig(auto_reconnect=True, retry_delay=0.01)
    async with MCPClient.connect_stdio(command, config) as client:
        await client.read("memo://a")
        await client.transport.close()
        await client.read("memo://b")
        assert client.generation == 1
        await client.read("memo://a")
        uris = [m["params"]["uri"] for m in heard(tmp_path, "resources/read")]
        assert uris == ["memo://a", "memo://b", "memo://a"]


async def test_a_stale_result_is_returned_while_a_single_read_refreshes_it() -> None:
    now = [0.0]
    cache, source = ResultCache(lambda: now[0], stale=10.0), Source(ttl=1000)

    async def read() -> bytes:
        return bytes(await cache.get("tools/list", None, source.fetch))

    source.gate.set()
    assert b'"n":1' in await read()
    source.gate.clear()
    now[0] = 5.0
    assert [b'"n":1' in old for old in (await read(), await read(), await read())] == [True] * 3
    await source.has_asked(2)  # one read for all callers
    source.gate.set()
    await settled(cache)
    assert b'"n":2' in await read()
    assert source.asked == 2
    now[0] = 16.0  # time to live 1 s, then stale for 10 s, counted from the request
    assert b'"n":3' in await read()


@pytest.mark.parametrize("change", ["told", "acted"])
async def test_a_stale_result_is_not_returned_after_a_change(change: str) -> None:
    now = [0.0]
    cache, source = ResultCache(lambda: now[0], stale=10.0), Source(ttl=1000)
    source.gate.set()
    await cache.get("tools/list", None, source.fetch)
    now[0] = 5.0
    if change == "told":
        cache.heard("notifications/tools/list_changed", {})
    else:
        cache.expire_stale()
    assert b'"n":2' in bytes(await cache.get("tools/list", None, source.fetch))


async def test_a_tool_call_drops_only_expired_results() -> None:
    cache, source = ResultCache(stale=10.0), Source(ttl=60_000)
    source.gate.set()
    await cache.get("tools/list", None, source.fetch)
    cache.expire_stale()
    assert b'"n":1' in bytes(await cache.get("tools/list", None, source.fetch))


async def test_a_failed_refresh_keeps_the_stale_result_until_it_expires() -> None:
    now, calls = [0.0], 0
    cache = ResultCache(lambda: now[0], stale=10.0)

    async def fetch() -> Raw:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError("gone")
        return Raw(b'{"ttlMs":1000}')

    async def read() -> Raw:
        return await cache.get("tools/list", None, fetch)

    await read()
    for attempt in (2, 3):
        now[0] = 5.0
        await read()
        await settled(cache)
        assert calls == attempt
    now[0] = 11.0
    with pytest.raises(OSError, match="gone"):
        await read()


async def test_closing_the_cache_cancels_a_refresh_in_progress() -> None:
    now = [0.0]
    cache, source = ResultCache(lambda: now[0], stale=10.0), Source(ttl=1000)
    source.gate.set()
    await cache.get("tools/list", None, source.fetch)
    source.gate.clear()
    now[0] = 5.0
    await cache.get("tools/list", None, source.fetch)
    await source.has_asked(2)
    await cache.close()
    assert len(cache._kept) == 0
    await source.has_stopped()


@pytest.mark.covers("PRO-25")
async def test_a_client_may_be_configured_to_return_stale_results(tmp_path: Path) -> None:
    source = KEEPING.replace('"ttlMs": 60000', '"ttlMs": 1').replace(
        '"inputSchema": {}', '"inputSchema": {}, "title": str(request["id"])'
    )
    command = program(tmp_path, source, stateless=True)
    async with MCPClient.connect_stdio(command, MCPClientConfig(stale_seconds=60)) as client:

        async def titles() -> list[Any]:
            return [tool.title for tool in await client.tools()]

        first = await titles()
        async with asyncio.timeout(5):
            while await titles() == first:  # stale, and refreshed in the background
                await client.ping()
        assert len(heard(tmp_path, "tools/list")) >= 3
    async with MCPClient.connect_stdio(command) as client:
        first = await titles()
        while len(heard(tmp_path, "server/discover")) < 20:
            await client.ping()  # takes longer than the time to live of 1 ms
        second = await titles()
        assert not set(first) & set(second)  # stale results are not returned by default


async def settled(cache: ResultCache) -> None:
    """Wait until background reads of the cache have ended."""
    async with asyncio.timeout(5):
        while cache._refreshing:
            await asyncio.sleep(0)


async def test_closing_a_client_drops_its_cached_results_and_stops_background_reads(
    tmp_path: Path,
) -> None:
    source = KEEPING.replace('"ttlMs": 60000', '"ttlMs": 1')
    command = program(tmp_path, source, stateless=True)
    async with MCPClient.connect_stdio(command, MCPClientConfig(stale_seconds=60)) as client:
        await client.tools()
        cache = client._cache
        assert cache is not None
        async with asyncio.timeout(5):
            while not cache._refreshing:
                await client.tools()
    assert len(cache._kept) == 0
    assert not cache._refreshing


@pytest.mark.parametrize(("limit", "value"), [("MAX_ENTRIES", 2), ("MAX_BYTES", 2 * 41)])
async def test_the_oldest_cached_results_are_dropped_at_the_limit(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(f"fairlead.client.api.result_cache.{limit}", value)
    cache = ResultCache()
    fetched: list[str] = []

    async def get(uri: str) -> None:
        async def fetch() -> Raw:
            fetched.append(uri)
            return Raw(b'{"contents":[],"ttlMs":60000,"x":"%b"}   ' % uri.encode())

        await cache.get("resources/read", {"uri": uri}, fetch)

    for uri in ("a", "b", "b", "c"):
        await get(uri)
    assert len(cache._kept) == 2
    assert fetched == ["a", "b", "c"]
    await get("c")
    await get("a")
    assert fetched == ["a", "b", "c", "a"]


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        (b'{"ttlMs":60000}', 1),
        (b'{"ttlMs":60000,"resultType":"complete"}', 1),
        (b'{"ttlMs":60000,"resultType":"input_required"}', 0),
        (b'{"ttlMs":0}', 0),
        (b'{"ttlMs":-1}', 0),
        (b'{"ttlMs":"long"}', 0),
        (b"{}", 0),
    ],
)
async def test_results_are_cached_only_with_a_time_to_live(result: bytes, kept: int) -> None:
    async def fetch() -> Raw:
        return Raw(result)

    cache = ResultCache()
    assert bytes(await cache.get("tools/list", None, fetch)) == result
    assert len(cache._kept) == kept


@pytest.mark.parametrize(
    ("changed", "left"),
    [
        ("memo://a/b", ["memo://c"]),
        ("memo://a", ["memo://c"]),
        ("memo://a/b/c", ["memo://c"]),
        ("memo://", []),
        ("memo://x", ["memo://a/b", "memo://c"]),
        (None, []),
    ],
)
async def test_a_resource_update_drops_cached_results_of_its_parents_and_children(
    changed: str | None, left: list[str]
) -> None:
    cache = ResultCache()
    fetched: list[str] = []

    async def get(uri: str) -> None:
        async def fetch() -> Raw:
            fetched.append(uri)
            return Raw(b'{"ttlMs":60000}')

        await cache.get("resources/read", {"uri": uri}, fetch)

    for uri in ("memo://a/b", "memo://c"):
        await get(uri)
    cache.heard("notifications/resources/updated", {"uri": changed})
    fetched.clear()
    for uri in ("memo://a/b", "memo://c"):
        await get(uri)
    assert [uri for uri in ("memo://a/b", "memo://c") if uri not in fetched] == left


async def test_no_result_is_cached_for_more_than_a_day() -> None:
    now = [0.0]
    cache, source = ResultCache(lambda: now[0]), Source(ttl=10**12)
    source.gate.set()
    for moment, asked in ((0.0, 1), (24 * 3600.0 - 1, 1), (24 * 3600.0, 2)):
        now[0] = moment
        await cache.get("tools/list", None, source.fetch)
        assert source.asked == asked


async def test_an_expired_result_is_dropped_before_it_is_read_again() -> None:
    now = 0.0
    cache = ResultCache(lambda: now)
    kept: list[int] = []

    async def fetch() -> Raw:
        kept.append(len(cache._kept))
        if len(kept) > 1:
            raise OSError
        return Raw(b'{"ttlMs":1000}')

    await cache.get("tools/list", None, fetch)
    assert cache._size == len(b'{"ttlMs":1000}')
    now = 0.999
    await cache.get("tools/list", {}, fetch)
    now = 1.0
    with pytest.raises(OSError):
        await cache.get("tools/list", {}, fetch)
    assert (kept, len(cache._kept), cache._size) == ([0, 0], 0, 0)
    assert cache._reading == {}
