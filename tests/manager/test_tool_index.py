"""The tools of a manager's servers: listed now, or remembered from last time."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.found_server import Source
from fairlead.errors import ConfigError, ConnectFailed
from fairlead.manager.server_spec import ServerSpec
from fairlead.manager.tool_index import ToolIndex

ENTRY = MCPStdioServerConfig(command="x")


class FakeCache:
    """What was kept last time."""

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

    def set(self, server: str, entry: Any, tools: Any) -> None:
        if self.error is not None:
            raise self.error
        self.kept.append((server, tools))


class Place:
    def __init__(self, cache: FakeCache | None = None, **spec: Any) -> None:
        self.specs = {
            name: ServerSpec(
                entry=ENTRY, source=Source(provider="p", provider_name="Program"), **spec
            )
            for name in ("red", "blue")
        }
        self.supervisors: dict[str, Any] = {}
        self.reported: list[list[str]] = []
        kept: Any = cache
        self.index = ToolIndex(
            self.specs,
            self.supervisors,
            kept,
            call=self._call,
            on_change=lambda tools: self.reported.append([tool.name for tool in tools]),
        )

    async def _call(self, *_: Any, **__: Any) -> dict[str, Any]:
        raise AssertionError

    def server(self, name: str, tools: Any = None, **about: Any) -> Any:
        one = SimpleNamespace(name=name, tools=tools, state="connected", error=None)
        vars(one).update(about)
        self.supervisors[name] = one
        return one

    def names(self) -> list[str]:
        return [tool.name for tool in self.index.tools]


def tools(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


async def test_new_tools_are_there_soon_and_told_once() -> None:
    place = Place()
    place.index.update(place.server("red", tools("a")))
    place.index.update(place.server("blue", tools("b")))
    assert place.reported == []
    await asyncio.sleep(0)
    assert len(place.reported) == 1
    assert place.names() == place.reported[0]
    assert len(place.names()) == 2
    place.index.update(place.supervisors["red"])  # nothing new
    await asyncio.sleep(0)
    assert len(place.reported) == 1
    found = place.index.get(place.names()[0])
    assert found is not None
    assert place.index.get("nothing") is None


async def test_a_rebuild_at_once_is_not_done_again_later() -> None:
    place = Place()
    place.index.update(place.server("red", tools("a")))
    assert place.index._rebuilding is not None
    rebuilt = place.index.rebuild()
    assert [tool.name for tool in rebuilt] == place.names()
    assert place.index._rebuilding is None
    place.supervisors["red"].tools = tools("a", "b")
    await asyncio.sleep(0)
    assert len(place.reported) == 1


async def test_tools_from_last_time_stand_in_until_the_server_lists_its_own() -> None:
    cache = FakeCache(red=tools("old"))
    place = Place(cache)
    assert place.index.recall("red", ENTRY)
    assert not place.index.recall("blue", ENTRY)
    assert place.index.remembered("red") == tools("old")
    assert place.index.remembered("blue") is None
    assert (place.index.is_known("red"), place.index.is_known("blue")) == (True, False)
    red = place.server("red", state="connecting")
    place.server("blue", state="connecting")
    (tool,) = place.index.rebuild()
    assert (tool.mcp_tool_name, tool.deferred, tool.available) == ("old", True, False)
    red.tools, red.state = tools("new"), "connected"
    place.index.update(red)
    await place.index.flush()
    assert cache.kept == [("red", tools("new"))]
    (tool,) = place.index.rebuild()
    assert (tool.mcp_tool_name, tool.deferred, tool.available) == ("new", False, True)
    red.state = "idle"
    assert tool.available
    red.state = "failed"
    assert not tool.available
    del place.supervisors["red"]
    assert not tool.available


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
async def test_a_server_that_did_not_start_is_remembered_as_such(
    state: str, error: Exception, remembered: bool, failing: bool
) -> None:
    cache = FakeCache(**({"red": tools("old")} if remembered else {}))
    place = Place(cache)
    place.index.recall("red", ENTRY)
    place.index.update(place.server("red", state=state, error=error))
    await place.index.flush()
    assert cache.kept == ([("red", None)] if failing else [])
    assert place.index.is_known("red") is (failing or remembered)
    place.index.update(place.server("red", tools("a")))
    await place.index.flush()
    assert cache.kept[-1] == ("red", tools("a"))
    assert place.index._failing == set()


async def test_one_that_did_not_start_last_time_is_not_waited_for() -> None:
    cache = FakeCache()
    cache.failing.add("red")
    place = Place(cache)
    assert not place.index.recall("red", ENTRY)
    assert place.index.is_known("red")
    place.index.forget(["red", "green"])
    assert not place.index.is_known("red")


async def test_what_is_forgotten_is_gone_with_the_next_rebuild() -> None:
    place = Place(FakeCache(red=tools("old")))
    place.index.recall("red", ENTRY)
    place.server("red")
    assert len(place.index.rebuild()) == 1
    place.index.forget(["red"])
    assert place.index.remembered("red") is None
    assert place.index.rebuild() == []
    assert [len(one) for one in place.reported] == [1, 0]


async def test_a_store_that_fails_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "fairlead.manager")
    cache = FakeCache(red=tools("old"))
    cache.error = OSError("broken")
    place = Place(cache)
    assert not place.index.recall("red", ENTRY)
    place.index.update(place.server("red", tools("a")))
    await place.index.flush()
    assert place.index._writing == set()
    assert [one.getMessage() for one in caplog.records] == [
        "red: its tools could not be looked up",
        "tools could not be kept for next time: broken",
    ]


async def test_without_a_cache_nothing_is_remembered() -> None:
    place = Place()
    assert not place.index.recall("red", ENTRY)
    place.index.update(place.server("red", tools("a")))
    await place.index.flush()
    assert len(place.index.rebuild()) == 1


async def test_tools_that_the_entry_leaves_out_are_not_there() -> None:
    place = Place(FakeCache(blue=tools("a", "b")), without_tools=("b",))
    place.server("red", tools("a", "b"))
    place.index.recall("blue", ENTRY)
    place.server("blue")
    assert {tool.mcp_tool_name for tool in place.index.rebuild()} == {"a"}


async def test_a_tool_says_which_program_configured_it() -> None:
    place = Place()
    place.server("red", tools("a"))
    (tool,) = place.index.rebuild()
    assert tool.path == "mcp:red via Program"
