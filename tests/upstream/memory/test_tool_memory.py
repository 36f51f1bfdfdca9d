"""Tools and failed starts that are remembered from an earlier program run."""

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.server_spec import ServerSpec
from fairlead.errors import ConfigError, ConnectFailed
from fairlead.upstream.memory.tool_cache import MCPToolCache, MemoryStore
from fairlead.upstream.memory.tool_memory import ToolMemory
from tests.support.virtual_time import VirtualTime

ENTRY = MCPStdioServerConfig(command="x")


class FakeCache:
    """A fake tool cache that records writes."""

    def __init__(self, **tools: Any) -> None:
        self.tools = tools
        self.failing: set[str] = set()
        self.kept: list[tuple[str, Any]] = []
        self.error: Exception | None = None

    def get(self, server: str, entry: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self.tools.get(server)

    def failed(self, server: str, entry: Any) -> bool:
        return server in self.failing

    def set(self, server: str, entry: Any, tools: Any, protocol_version: str) -> None:
        assert entry is ENTRY
        if self.error is not None:
            raise self.error
        self.kept.append((server, tools))


def memory_of(cache: Any) -> ToolMemory:
    return ToolMemory(cache)


def server(name: str, tools: Any = None, **facts: Any) -> Any:
    """Return a stub of an upstream with the attributes that the memory reads."""
    known = {"state": "connected", "error": None, "client": None, "spec": ServerSpec(entry=ENTRY)}
    return SimpleNamespace(name=name, tools=tools, **{**known, **facts})


def tools(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


async def test_cached_tools_are_used_until_the_server_lists_its_own() -> None:
    cache = FakeCache(red=tools("old"))
    memory = memory_of(cache)
    assert memory.recall("red", ENTRY)
    assert not memory.recall("blue", ENTRY)
    assert (memory.get("red"), memory.get("blue")) == (tools("old"), None)
    assert (memory.is_known("red"), memory.is_known("blue")) == (True, False)
    memory.update(server("red", state="connecting"))
    assert memory.get("red") == tools("old")
    memory.update(server("red", tools("new")))
    await memory.flush()
    assert (memory.get("red"), cache.kept) == (tools("new"), [("red", tools("new"))])


async def test_tools_are_written_once_for_each_list() -> None:
    cache = FakeCache()
    memory, red = memory_of(cache), server("red", tools("a"))
    memory.update(red)
    memory.update(red)
    red.state = "reconnecting"
    memory.update(red)
    red.tools = tools("a")  # the server has listed equal tools again
    memory.update(red)
    await memory.flush()
    assert cache.kept == [("red", tools("a"))] * 2


@pytest.mark.parametrize(
    ("state", "error", "remembered", "failing"),
    [
        ("failed", ConnectFailed("no"), False, True),
        ("failed", ConfigError("no"), False, False),
        ("failed", ConnectFailed("no"), True, False),
        ("suspended", ConnectFailed("no"), False, False),
    ],
    ids=["failed", "mistake", "known", "suspended"],
)
async def test_a_server_that_failed_to_start_is_remembered(
    state: str, error: Exception, remembered: bool, failing: bool
) -> None:
    cache = FakeCache(**({"red": tools("old")} if remembered else {}))
    memory = memory_of(cache)
    memory.recall("red", ENTRY)
    memory.update(server("red", state=state, error=error))
    await memory.flush()
    assert cache.kept == ([("red", None)] if failing else [])
    assert memory.is_known("red") is (failing or remembered)
    memory.update(server("red", tools("a")))
    await memory.flush()
    assert cache.kept[-1] == ("red", tools("a"))
    assert memory._failing == set()


async def test_a_server_whose_last_start_failed_is_known_until_it_is_forgotten() -> None:
    cache = FakeCache()
    cache.failing.add("red")
    memory = memory_of(cache)
    assert not memory.recall("red", ENTRY)
    assert memory.is_known("red")
    memory.forget(["red", "green"])
    assert not memory.is_known("red")


async def test_tools_removed_from_memory_stay_in_the_cache() -> None:
    memory = ToolMemory(MCPToolCache(MemoryStore()))
    memory.update(server("red", tools("a")))
    await memory.flush()
    memory.forget(["red"])
    assert (memory.get("red"), memory.is_known("red")) == (None, False)
    assert memory.recall("red", ENTRY)
    assert memory.get("red") == tools("a")


async def test_errors_of_a_failing_cache_are_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "fairlead.manager")
    cache = FakeCache(red=tools("old"))
    cache.error = OSError("broken")
    memory = memory_of(cache)
    assert not memory.recall("red", ENTRY)
    memory.update(server("red", tools("a")))
    await memory.flush()
    assert (memory.get("red"), memory._writing) == (tools("a"), set())
    assert [record.getMessage() for record in caplog.records] == [
        "red: the cached tools could not be read",
        "tools could not be cached: broken",
    ]


async def test_without_a_cache_tools_are_remembered_while_the_program_runs() -> None:
    memory = ToolMemory(None)
    assert not memory.recall("red", ENTRY)
    memory.update(server("red", tools("a")))
    memory.update(server("blue", state="failed", error=ConnectFailed("no")))
    await memory.flush()
    assert (memory.get("red"), memory.is_known("blue")) == (tools("a"), True)


async def test_flushing_waits_two_seconds_for_the_cache(virtual_time: VirtualTime) -> None:
    cache, release = FakeCache(), threading.Event()
    cache.set = lambda *_: release.wait(5)  # type: ignore[method-assign, assignment]
    memory = memory_of(cache)
    memory.update(server("red", tools("a")))
    began = virtual_time.now
    await memory.flush()
    assert virtual_time.now == began + 2.0
    release.set()
    (writing,) = memory._writing
    await writing
