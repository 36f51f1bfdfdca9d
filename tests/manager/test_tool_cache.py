"""Tools from last time."""

import json
import time
from pathlib import Path

import pytest

from fairlead.client import MCPStdioServerConfig
from fairlead.manager.cache import FileStore, MCPToolCache, MemoryStore, entry_hash

ENTRY = MCPStdioServerConfig(command="x", env={"TOKEN": "${SECRET}"})
TOOLS = [{"name": "a", "inputSchema": {"type": "object"}}]


@pytest.mark.covers("HST-60")
def test_tools_are_kept_for_the_same_entry_only(tmp_path: Path) -> None:
    for store in (MemoryStore(), FileStore(tmp_path / "cache")):
        cache = MCPToolCache(store)
        assert cache.get("s", ENTRY) is None
        cache.set("s", ENTRY, TOOLS)
        assert cache.get("s", ENTRY) == TOOLS
        assert cache.get("other", ENTRY) is None
        assert cache.get("s", MCPStdioServerConfig(command="y")) is None
        cache.remove("s")
        assert cache.get("s", ENTRY) is None


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
def test_what_cannot_be_read_is_a_miss(damage: bytes, tmp_path: Path) -> None:
    cache = MCPToolCache(FileStore(tmp_path))
    cache.set("s", ENTRY, TOOLS)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage[:200])
    assert cache.get("s", ENTRY) is None
    file.write_bytes(file.read_bytes()[: len(damage) // 2])
    assert cache.get("s", ENTRY) is None


@pytest.mark.covers("HST-60")
def test_what_is_too_old_or_from_the_future_does_not_count(tmp_path: Path) -> None:
    cache = MCPToolCache(FileStore(tmp_path))
    cache.set("s", ENTRY, TOOLS)
    (file,) = tmp_path.iterdir()
    kept = json.loads(file.read_bytes())
    for saved in (time.time() - 31 * 86400, time.time() + 3600):
        file.write_text(json.dumps({**kept, "saved": saved}))
        assert cache.get("s", ENTRY) is None


@pytest.mark.covers("HST-25", "HST-60")
def test_a_cache_that_cannot_be_written_hurts_nobody(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("no folder")
    cache = MCPToolCache(FileStore(place / "cache"))
    cache.set("s", ENTRY, TOOLS)
    assert cache.get("s", ENTRY) is None


@pytest.mark.covers("HST-60")
def test_no_secret_goes_into_the_hash_or_the_file(tmp_path: Path) -> None:
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
