"""Results are kept as long as the server says, and not beyond news of a change."""

import asyncio
from pathlib import Path

import pytest
from handmade import heard, program
from msgspec import Raw

from fairlead import MCPClient, MCPClientConfig
from fairlead.client.cache import Cache
from fairlead.client.eras import known_eras


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
async def test_lists_and_reads_are_asked_for_once_until_they_change(tmp_path: Path) -> None:
    command = program(tmp_path, KEEPING, stateless=True)

    def asked() -> tuple[int, int]:
        return len(heard(tmp_path, "tools/list")), len(heard(tmp_path, "resources/read"))

    async with MCPClient.connect_stdio(command) as client:
        assert [tool.name for tool in await client.tools()] == ["t1", "t2"]
        assert len(await client.list_tools()) == 2
        await asyncio.gather(*(client.read("memo://a") for _ in range(5)))
        await client.read("memo://b")
        assert asked() == (2, 2)  # pages are kept one by one
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
    """Answers when it is told to."""

    def __init__(self, ttl: int = 1000) -> None:
        self.asked = 0
        self.stopped = 0
        self.gate = asyncio.Event()
        self.ttl = ttl

    async def fetch(self) -> Raw:
        self.asked += 1
        number = self.asked
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return Raw(b'{"ttlMs":%d,"n":%d}' % (self.ttl, number))


async def test_what_is_old_is_asked_for_again() -> None:
    now = [0.0]
    cache, source = Cache(lambda: now[0]), Source(ttl=1000)
    source.gate.set()
    for moment, asked in ((0.0, 1), (0.9, 1), (1.0, 2), (1.9, 2)):
        now[0] = moment
        await cache.get("tools/list", None, source.fetch)
        assert source.asked == asked


async def test_a_shared_read_ends_with_the_last_who_waits() -> None:
    cache, source = Cache(), Source()
    readers = [asyncio.ensure_future(cache.get("tools/list", None, source.fetch)) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    readers[0].cancel()
    await asyncio.wait(readers[:1])
    assert (source.asked, source.stopped) == (1, 0)
    for reader in readers[1:]:
        reader.cancel()
    await asyncio.wait(readers)
    await asyncio.sleep(0)
    assert (source.asked, source.stopped) == (1, 1)
    source.gate.set()
    await cache.get("tools/list", None, source.fetch)
    assert source.asked == 2


@pytest.mark.parametrize("change", ["told", "acted"])
async def test_nobody_joins_a_read_from_before_a_change(change: str) -> None:
    cache, source = Cache(), Source()
    early = asyncio.ensure_future(cache.get("tools/list", None, source.fetch))
    await asyncio.sleep(0.01)
    if change == "told":
        cache.heard("notifications/tools/list_changed", {})
    else:
        cache.acted()
    late = asyncio.ensure_future(cache.get("tools/list", None, source.fetch))
    await asyncio.sleep(0.01)
    source.gate.set()
    assert b'"n":1' in bytes(await early)
    assert b'"n":2' in bytes(await late)
    assert b'"n":2' in bytes(await cache.get("tools/list", None, source.fetch))


async def test_what_changed_while_it_was_read_is_not_kept() -> None:
    cache, source = Cache(), Source()
    early = asyncio.ensure_future(cache.get("tools/list", None, source.fetch))
    await asyncio.sleep(0.01)
    cache.heard("notifications/tools/list_changed", {})
    source.gate.set()
    await early
    assert len(cache) == 0
    assert b'"n":2' in bytes(await cache.get("tools/list", None, source.fetch))


async def test_a_failure_is_everybodys_and_is_not_kept() -> None:
    cache, calls = Cache(), 0

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
