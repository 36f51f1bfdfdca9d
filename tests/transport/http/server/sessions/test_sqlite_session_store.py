"""The SQLite file of sessions: creation, permissions, migration and limits."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from fairlead.limits import STORED_SESSIONS
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


async def test_the_client_with_most_sessions_loses_its_oldest(tmp_path: Path) -> None:
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
