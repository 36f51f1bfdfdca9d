"""Session store in an SQLite file."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeVar

from .....limits import STORED_SESSIONS
from .session_store import MAX_SESSIONS, StoredSession

__all__ = ["SqliteSessionStore"]

T = TypeVar("T")

_COLUMNS = StoredSession.__struct_fields__
# Deletes the least recently used session of the client with most sessions.
_DROP_ONE = """
DELETE FROM sessions WHERE key = (
    SELECT key FROM sessions WHERE client = (
        SELECT client FROM sessions GROUP BY client ORDER BY count(*) DESC, min(used) LIMIT 1
    ) ORDER BY used LIMIT 1
)
"""


class SqliteSessionStore:
    """Session store in a private file, accessed by a thread of its own.

    Several processes may share the file.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_sessions: int = MAX_SESSIONS) -> None:
        self._path = Path(path)
        self._max = max_sessions
        # One thread: an SQLite connection must not be used by several at once.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fairlead-sessions")
        self._open: sqlite3.Connection | None = None

    def check(self) -> Self:
        """Open the file now, so that errors are reported at start-up.

        Raises:
            OSError: The file is not an SQLite database or cannot be written.
        """
        try:
            self._thread.submit(self._opened).result()
        except sqlite3.Error as exc:
            raise OSError(str(exc)) from exc
        return self

    async def save(self, session: StoredSession) -> None:
        def work(file: sqlite3.Connection) -> None:
            file.execute(
                f"INSERT OR REPLACE INTO sessions ({', '.join(_COLUMNS)})"
                f" VALUES ({', '.join('?' * len(_COLUMNS))})",
                [getattr(session, name) for name in _COLUMNS],
            )
            (kept,) = file.execute("SELECT count(*) FROM sessions").fetchone()
            for _ in range(kept - self._max):
                STORED_SESSIONS.hit()
                file.execute(_DROP_ONE)

        await self._do(work)

    async def load(self, key: str) -> StoredSession | None:
        query = f"SELECT {', '.join(_COLUMNS)} FROM sessions WHERE key = ?"
        row = await self._do(lambda file: file.execute(query, (key,)).fetchone())
        return None if row is None else StoredSession(**dict(zip(_COLUMNS, row, strict=True)))

    async def touch(self, keys: list[str], used: float) -> None:
        query, rows = "UPDATE sessions SET used = ? WHERE key = ?", [(used, key) for key in keys]
        await self._do(lambda file: file.executemany(query, rows))

    async def delete(self, key: str) -> None:
        await self._do(lambda file: file.execute("DELETE FROM sessions WHERE key = ?", (key,)))

    async def expire(self, before: float) -> int:
        query = "DELETE FROM sessions WHERE used < ?"
        return await self._do(lambda file: file.execute(query, (before,)).rowcount)

    def close(self) -> None:
        """Finish pending writes and close the file."""
        self._thread.submit(self._end)
        self._thread.shutdown()

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            file = self._opened()
            # As a context manager the connection commits, or rolls back after an exception.
            with file:
                return work(file)

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _opened(self) -> sqlite3.Connection:
        if self._open is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Created here with the right mode, because SQLite would use the umask.
            made = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                # An existing file may be readable by other users. SQLite creates its journal with
                # the same mode, and sessions are as sensitive as credentials.
                with suppress(OSError, AttributeError):
                    os.fchmod(made, 0o600)
            finally:
                os.close(made)
            file = sqlite3.connect(self._path, timeout=5.0, check_same_thread=False)
            try:
                # In WAL mode readers and one writer of several processes do not block each other.
                file.execute("PRAGMA journal_mode = WAL")
                file.execute("PRAGMA synchronous = NORMAL")
                file.execute(
                    "CREATE TABLE IF NOT EXISTS sessions (key TEXT PRIMARY KEY, principal TEXT,"
                    " opening BLOB NOT NULL, revision TEXT NOT NULL, created REAL NOT NULL,"
                    " used REAL NOT NULL, client TEXT NOT NULL DEFAULT '') WITHOUT ROWID"
                )
                names = [row[1] for row in file.execute("PRAGMA table_info(sessions)")]
                if "client" not in names:  # created by an earlier version
                    file.execute("ALTER TABLE sessions ADD COLUMN client TEXT NOT NULL DEFAULT ''")
            except BaseException:
                file.close()
                raise
            self._open = file
        return self._open

    def _end(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
