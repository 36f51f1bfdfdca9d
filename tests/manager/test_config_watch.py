"""Changes to configuration files while servers run, with real files and servers."""

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
QUICK = 0.03  # seconds between checks


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home directory, and clear variables that name other folders."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return place


def write(path: Path, servers: dict[str, Any] | str) -> None:
    """Replace the file atomically, as careful programs do."""
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
    """A counter of file reads that tests can wait for."""

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
async def test_a_changed_file_affects_only_the_servers_that_changed_in_it(
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

        # The first configuration file of a program is created.
        write(home / ".gemini" / "settings.json", {"late": entry(tmp_path, "late")})
        await until(lambda: "late" in manager.get_connected_servers())
        (home / ".gemini" / "settings.json").unlink()
        await until(lambda: "late" not in manager.get_all_server_names())
        assert manager.connections["stays"].client is before["stays"].client
    write(cursor, {"after": entry(tmp_path, "after")})
    assert manager.get_all_server_names() == []  # closing the manager ended the watcher


async def test_changed_settings_of_an_entry_apply_without_a_restart(
    home: Path, tmp_path: Path
) -> None:
    file = home / ".config" / "fairlead" / "mcp.json"
    plain = entry(tmp_path, "one")
    write(file, {"one": plain})
    async with MCPManager(tmp_path) as manager:
        await manager.discover_and_connect()
        before = manager.connections["one"].client
        await manager.watch(interval=QUICK)
        write(file, {"one": {**plain, "health_interval": 7, "call_timeout": 9}})
        upstream = manager.describe()["one"]
        await until(lambda: upstream.settings.health_interval == 7)
        assert upstream.settings.call_timeout == 9
        # A gateway that is created later uses the same settings.
        assert upstream.spec.own_settings == {"health_interval": 7.0, "call_timeout": 9.0}
        write(file, {"one": plain})
        await until(lambda: upstream.settings.health_interval == 60)
        assert manager.connections["one"].client is before


async def test_a_partially_written_file_does_not_disconnect_servers(
    home: Path, tmp_path: Path
) -> None:
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
        # Some editors delete the file and create it again before the next check.
        cursor.unlink()
        write(cursor, {"a": servers["a"]})
        await until(lambda: manager.get_all_server_names() == ["a"])
        assert manager.connections["a"].client is before["a"].client
        # a slow read does not block the event loop
        assert threading.get_ident() not in looks.threads
        await reloader.close()


async def test_a_configuration_change_while_servers_start_is_applied(
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
async def test_a_tool_session_uses_the_new_tools_after_a_reload_of_all_servers(
    home: Path, tmp_path: Path
) -> None:
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
        # A closed session is not notified, although its manager continues.
        await manager.connect_servers({"d": entry(tmp_path, "d")})
        assert registry == {}
