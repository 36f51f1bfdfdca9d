"""Tools that were cached in an earlier program run."""

import json
import time
from pathlib import Path

import pytest

from fairlead.client import MCPStdioServerConfig
from fairlead.upstream.memory.tool_cache import FileStore, MCPToolCache, MemoryStore, entry_hash

ENTRY = MCPStdioServerConfig(command="x", env={"TOKEN": "${SECRET}"})
TOOLS = [{"name": "a", "inputSchema": {"type": "object"}}]


@pytest.mark.covers("HST-60")
def test_tools_are_cached_for_the_same_entry_only(tmp_path: Path) -> None:
    for store in (MemoryStore(), FileStore(tmp_path / "cache")):
        cache = MCPToolCache(store)
        assert cache.get("s", ENTRY) is None
        cache.set("s", ENTRY, TOOLS)
        assert cache.get("s", ENTRY) == TOOLS
        assert cache.get("other", ENTRY) is None
        assert cache.get("s", MCPStdioServerConfig(command="y")) is None


@pytest.mark.covers("HST-60")
@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[]",
        b'{"version": 999, "entry": "x", "saved": 1, "tools": []}',
        b"[" * 100_000,
    ],
    ids=repr,
)
def test_an_unreadable_cache_entry_is_a_cache_miss(damage: bytes, tmp_path: Path) -> None:
    cache = MCPToolCache(FileStore(tmp_path))
    cache.set("s", ENTRY, TOOLS)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage[:200])
    assert cache.get("s", ENTRY) is None
    file.write_bytes(file.read_bytes()[: len(damage) // 2])
    assert cache.get("s", ENTRY) is None


@pytest.mark.covers("HST-60")
def test_expired_and_future_cache_entries_are_ignored(tmp_path: Path) -> None:
    cache = MCPToolCache(FileStore(tmp_path))
    cache.set("s", ENTRY, TOOLS)
    (file,) = tmp_path.iterdir()
    kept = json.loads(file.read_bytes())
    for saved in (time.time() - 31 * 86400, time.time() + 3600):
        file.write_text(json.dumps({**kept, "saved": saved}))
        assert cache.get("s", ENTRY) is None


@pytest.mark.covers("HST-25", "HST-60")
def test_a_tool_cache_that_cannot_be_written_raises_no_error(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("no folder")
    cache = MCPToolCache(FileStore(place / "cache"))
    cache.set("s", ENTRY, TOOLS)
    assert cache.get("s", ENTRY) is None


@pytest.mark.covers("HST-60")
def test_the_hash_and_the_cache_file_contain_no_secrets(tmp_path: Path) -> None:
    cache = MCPToolCache(FileStore(tmp_path))
    cache.set("s", ENTRY, TOOLS)
    (file,) = tmp_path.iterdir()
    assert b"SECRET" not in file.read_bytes()
    assert file.stat().st_mode & 0o077 == 0
    assert entry_hash(ENTRY) == entry_hash(
        {"command": "x", "env": {"TOKEN": "${SECRET}"}} | _defaults()
    )


def _defaults() -> dict[str, object]:
    import msgspec

    return {k: v for k, v in msgspec.to_builtins(ENTRY).items() if k not in ("command", "env")}


def test_tools_of_a_server_are_cached_up_to_a_size_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = MCPToolCache(FileStore(tmp_path))
    cache.set("s", ENTRY, TOOLS)
    (file,) = tmp_path.iterdir()
    monkeypatch.setattr("fairlead.upstream.memory.tool_cache.MAX_BYTES", file.stat().st_size)
    assert cache.get("s", ENTRY) == TOOLS
    cache.set("s", ENTRY, [*TOOLS, *TOOLS])
    assert cache.get("s", ENTRY) == TOOLS  # the longer list is too large to be written
    monkeypatch.setattr("fairlead.upstream.memory.tool_cache.MAX_BYTES", file.stat().st_size - 1)
    assert cache.get("s", ENTRY) is None


def test_a_failed_start_is_stored_in_the_cache() -> None:
    cache = MCPToolCache(MemoryStore())
    assert cache.failed("s", ENTRY) is False
    cache.set("s", ENTRY, None)
    assert cache.failed("s", ENTRY) is True
    assert cache.get("s", ENTRY) is None
    cache.set("s", ENTRY, [{"name": 5}, *TOOLS])
    assert cache.failed("s", ENTRY) is False
    assert cache.get("s", ENTRY) == TOOLS


def test_a_failed_cache_write_leaves_no_file_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = FileStore(tmp_path / "cache")
    store.write("k", b"old")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700

    def fail(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("fairlead.store.atomic_write.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        store.write("k", b"new")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["k.json"]
    assert store.read("k") == b"old"


@pytest.mark.parametrize(("age", "fresh"), [(0, True), (29.9, True), (30.1, False), (-1, False)])
def test_cached_tools_expire_after_thirty_days(
    monkeypatch: pytest.MonkeyPatch, age: float, fresh: bool
) -> None:
    cache = MCPToolCache(MemoryStore())
    now = time.time()
    monkeypatch.setattr("fairlead.upstream.memory.tool_cache.time.time", lambda: now)
    cache.set("s", ENTRY, TOOLS)
    monkeypatch.setattr(
        "fairlead.upstream.memory.tool_cache.time.time", lambda: now + age * 24 * 3600
    )
    assert (cache.get("s", ENTRY) == TOOLS) is fresh
