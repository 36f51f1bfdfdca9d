"""Configuration files that change while their servers run: real files, real servers."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.client.connection.era_cache import known_eras
from fairlead.config.trust import Trust
from fairlead.manager.config_watch import ConfigSnapshot, Reloader, snapshot_reader
from fairlead.manager.manager import MCPManager
from fairlead.manager.tools.tool_session import ToolSession
from fairlead.upstream.memory.tool_cache import MCPToolCache, MemoryStore
from tests.support.managed_servers import entry

LIMIT = 20.0
QUICK = 0.03  # seconds between looks


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and an environment that names no other place."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return place


def write(path: Path, servers: dict[str, Any] | str) -> None:
    """As careful programs do: the new file takes the place of the old one in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = servers if isinstance(servers, str) else json.dumps({"mcpServers": servers})
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(path)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.01)


class Looks:
    """Counts how often files were read, so that a test knows when something had been seen."""

    def __init__(self, load: Callable[[], ConfigSnapshot]) -> None:
        self._load = load
        self.count = 0
        self.threads: set[int] = set()

    def __call__(self) -> ConfigSnapshot:
        reading = self._load()
        self.threads.add(threading.get_ident())
        self.count += 1
        return reading


def states(manager: MCPManager) -> dict[str, int]:
    return {name: one.generation for name, one in manager.connections.items()}


@pytest.mark.covers("HST-17")
async def test_files_are_followed_and_only_what_changed_is_touched(
    home: Path, tmp_path: Path
) -> None:
    cursor = home / ".cursor" / "mcp.json"
    project = tmp_path / "project"
    project.mkdir()
    write(cursor, {name: entry(tmp_path, name) for name in ("stays", "goes", "changes")})
    async with MCPManager(project) as manager:
        await manager.connect_servers({"by_hand": entry(tmp_path, "by_hand")})
        loaded = await manager.discover_and_connect(trust=Trust(tmp_path / "approvals.json"))
        assert loaded.connected_servers == ["by_hand", "changes", "goes", "stays"]
        before = manager.connections
        await manager.watch(interval=QUICK, trust=Trust(tmp_path / "approvals.json"))
        servers = {
            "stays": entry(tmp_path, "stays"),
            "changes": entry(tmp_path, "changes", "slow", "0.01"),
            "comes": entry(tmp_path, "comes"),
        }
        write(cursor, servers)
        wanted = ["by_hand", "changes", "comes", "stays"]
        await until(lambda: manager.get_connected_servers() == wanted)
        after = manager.connections
        for name in ("stays", "by_hand"):
            assert after[name].client is before[name].client
        assert after["changes"].client is not before["changes"].client
        assert manager.get_tool("mcp_goes_whoami") is None

        # A file that was not there, of a program that was not either.
        write(home / ".gemini" / "settings.json", {"late": entry(tmp_path, "late")})
        await until(lambda: "late" in manager.get_connected_servers())
        (home / ".gemini" / "settings.json").unlink()
        await until(lambda: "late" not in manager.get_all_server_names())
        assert manager.connections["stays"].client is before["stays"].client
    write(cursor, {"after": entry(tmp_path, "after")})
    assert manager.get_all_server_names() == []  # closing ended it: no task is left


async def test_a_file_that_is_being_written_takes_nothing_away(home: Path, tmp_path: Path) -> None:
    cursor = home / ".cursor" / "mcp.json"
    servers = {name: entry(tmp_path, name) for name in "ab"}
    write(cursor, servers)
    async with MCPManager(tmp_path) as manager:
        looks = Looks(snapshot_reader(tmp_path))
        reloader = Reloader(manager, looks, interval=QUICK)
        reloader.start()
        await until(lambda: manager.get_connected_servers() == ["a", "b"])
        before = manager.connections
        text = cursor.read_text()
        for broken in (text[: len(text) // 2], "", "[1, 2]", "{ half", "\0"):
            seen = looks.count
            cursor.write_text(broken)
            await until(lambda n=seen: looks.count > n)  # type: ignore[misc]
        assert {name: one.client for name, one in manager.connections.items()} == {
            name: one.client for name, one in before.items()
        }
        # Removed and written anew, as some editors do: between two looks nobody notices.
        cursor.unlink()
        write(cursor, {"a": servers["a"]})
        await until(lambda: manager.get_all_server_names() == ["a"])
        assert manager.connections["a"].client is before["a"].client
        assert threading.get_ident() not in looks.threads  # whoever is slow to read holds nobody up
        await reloader.close()


async def test_a_configuration_that_changes_while_its_servers_start_is_the_one_that_counts(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.manager.config_watch.INTERVAL", QUICK)
    cursor = home / ".cursor" / "mcp.json"
    slow = entry(tmp_path, "a", "slow", "30")
    write(cursor, {"a": slow, "b": entry(tmp_path, "b")})
    async with MCPManager(tmp_path, startup="background") as manager:
        await manager.discover_and_connect(watch=True, cache=MCPToolCache(MemoryStore()))
        assert manager.get_connection_status("a") == "connecting"
        stuck = manager.describe()["a"]
        write(cursor, {"a": entry(tmp_path, "a"), "b": entry(tmp_path, "b")})
        await until(lambda: manager.get_connected_servers() == ["a", "b"])
        assert stuck.state == "stopped"
        assert states(manager) == {"a": 1, "b": 1}
        began = time.monotonic()
        (home / ".cursor" / "mcp.json").unlink()
        await until(lambda: manager.get_all_server_names() == [])
        assert time.monotonic() - began < 5


@pytest.mark.covers("HST-40")
async def test_reload_is_disconnect_discover_refresh(home: Path, tmp_path: Path) -> None:
    cursor = home / ".cursor" / "mcp.json"
    write(cursor, {"a": entry(tmp_path, "a"), "b": entry(tmp_path, "b")})
    async with MCPManager(tmp_path) as manager:
        await manager.discover_and_connect()
        async with ToolSession(manager, owned=False) as session:
            await session.refresh_mcp_tools(manager.get_tools())
            assert {tool.mcp_server_name for tool in session.mcp_tools} == {"a", "b"}
            write(cursor, {"b": entry(tmp_path, "b"), "c": entry(tmp_path, "c")})
            await manager.disconnect_all()
            assert manager.get_tools() == []
            await manager.discover_and_connect()
            await session.refresh_mcp_tools(manager.get_tools())
            assert {tool.mcp_server_name for tool in session.mcp_tools} == {"b", "c"}
            registry = session.registry.tools  # type: ignore[attr-defined]
            (whoami,) = [tool for name, tool in registry.items() if name == "mcp_c_whoami"]
            assert (await whoami.execute()).text.startswith("c ")
        # A session that is over hears nothing any more, though its manager goes on.
        await manager.connect_servers({"d": entry(tmp_path, "d")})
        assert registry == {}
