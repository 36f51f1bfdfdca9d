"""The SQLite file of sessions: creation, permissions, migration and limits."""

import asyncio
import contextlib
import logging
import os
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.errors import LocalResourceError
from fairlead.limits import STORED_SESSIONS
from fairlead.transport.http.server.sessions import sqlite_session_store as module
from fairlead.transport.http.server.sessions.session_store import StoredSession
from fairlead.transport.http.server.sessions.sqlite_session_store import SqliteSessionStore


def session(key: str, used: float = 1.0, client: str = "") -> StoredSession:
    return StoredSession(
        key=key,
        principal=None,
        opening=b"{}",
        revision="2025-11-25",
        created=1.0,
        used=used,
        client=client,
    )


async def test_the_file_is_created_private_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "sessions.db"
    store = SqliteSessionStore(path)
    assert store.check() is store
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await store.save(session("a"))
    assert store._open is not None
    assert store._open.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()
    assert store._open is None
    assert sorted(os.listdir(path.parent)) == ["sessions.db"]
    again = SqliteSessionStore(path)
    assert await again.load("a") == session("a")
    again.close()


def test_an_unused_store_can_be_closed(tmp_path: Path) -> None:
    SqliteSessionStore(tmp_path / "sessions.db").close()
    assert os.listdir(tmp_path) == []


async def test_the_permissions_of_an_existing_file_are_restricted(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    path.touch(mode=0o644)
    SqliteSessionStore(path).check().close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"no database at all, but long enough" * 100])
def test_a_file_that_is_not_a_database_is_refused_and_unchanged(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "sessions.db"
    path.write_bytes(content)
    store = SqliteSessionStore(path)
    with pytest.raises(OSError, match="not a database"):
        store.check()
    assert store._open is None
    store.close()
    assert path.read_bytes() == content


async def test_a_file_of_an_earlier_version_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with sqlite3.connect(path) as file:
        file.execute(
            "CREATE TABLE sessions (key TEXT PRIMARY KEY, principal TEXT, opening BLOB NOT NULL,"
            " revision TEXT NOT NULL, created REAL NOT NULL, used REAL NOT NULL) WITHOUT ROWID"
        )
        file.execute("INSERT INTO sessions VALUES ('a', NULL, x'7b7d', '2025-11-25', 1.0, 1.0)")
    file.close()
    store = SqliteSessionStore(path)
    assert await store.load("a") == session("a")
    await store.save(session("b", client="c"))
    assert await store.load("b") == session("b", client="c")
    store.close()


async def test_the_client_with_the_most_sessions_loses_its_oldest(tmp_path: Path) -> None:
    store = SqliteSessionStore(tmp_path / "sessions.db", max_sessions=3)
    hits = STORED_SESSIONS.hits
    await store.save(session("a1", 1, "a"))
    await store.save(session("b1", 2, "b"))
    await store.save(session("b2", 3, "b"))
    assert STORED_SESSIONS.hits == hits
    await store.save(session("b3", 4, "b"))
    assert STORED_SESSIONS.hits == hits + 1
    left = [key for key in ("a1", "b1", "b2", "b3") if await store.load(key) is not None]
    assert left == ["a1", "b2", "b3"]
    store.close()


async def test_unused_sessions_expire(tmp_path: Path) -> None:
    store = SqliteSessionStore(tmp_path / "sessions.db")
    for number in range(4):
        await store.save(session(str(number), number))
    await store.touch(["0", "9"], 10)
    assert await store.expire(2) == 1
    assert await store.expire(2) == 0
    await store.delete("3")
    left = [key for key in "0123" if await store.load(key) is not None]
    assert left == ["0", "2"]
    kept = await store.load("0")
    assert kept is not None
    assert kept.used == 10
    store.close()


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of this size; skip the test if that is not permitted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write to a file until the disk is full."""
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while file.write(bytes(512)):
            pass


async def stored(path: Path) -> dict[str, StoredSession | None]:
    """Load the sessions a, b and c through a second store, as another process would."""
    store = SqliteSessionStore(path)
    found = {key: await store.load(key) for key in "abc"}
    store.close()
    return found


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY", 0.01)
    monkeypatch.setattr(module, "LONGEST_RETRY", 0.05)


async def test_changes_on_a_full_disk_are_written_when_space_is_available_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, soon: None
) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk, caplog.at_level(logging.WARNING):
        path = disk / "sessions.db"
        store = SqliteSessionStore(path).check()
        await store.save(session("a"))
        await store.save(session("b"))
        fill(disk / "rest")
        await store.delete("a")
        await store.touch(["b"], 7)
        await store.save(session("c"))
        assert await store.expire(0.5) == 0
        assert (await store.load("a"), await store.load("c")) == (None, session("c"))
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert isinstance(store.shortage, LocalResourceError)
        assert store.shortage.resource == "disk space"
        assert await stored(path) == {"a": session("a"), "b": session("b"), "c": None}
        (disk / "rest").unlink()
        async with asyncio.timeout(10):
            while store.shortage is not None:
                await asyncio.sleep(0.01)
        assert await stored(path) == {"a": None, "b": session("b", 7.0), "c": session("c")}
        assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
        store.close()


async def test_changes_that_could_not_be_written_are_reported_at_close(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "sessions.db"
    store = SqliteSessionStore(path).check()
    with contextlib.closing(sqlite3.connect(path)) as other:
        store._open.execute("PRAGMA busy_timeout = 1")  # type: ignore[union-attr]
        other.execute("BEGIN EXCLUSIVE")
        for key in "aab":
            await store.save(session(key))
        store.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"cannot write {path}: database is locked; keeping changes in memory",
        f"{path} was closed without 2 session changes",
    ]
    assert store.shortage is None


async def test_the_number_of_unwritten_changes_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = SqliteSessionStore(path, max_sessions=2).check()
    with contextlib.closing(sqlite3.connect(path)) as other:
        store._open.execute("PRAGMA busy_timeout = 1")  # type: ignore[union-attr]
        other.execute("BEGIN EXCLUSIVE")
        hits = STORED_SESSIONS.hits
        for key in "abc":
            await store.save(session(key))
        assert STORED_SESSIONS.hits == hits + 1
    store.close()
    assert await stored(path) == {"a": None, "b": session("b"), "c": session("c")}
