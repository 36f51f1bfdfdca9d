"""Session store in an SQLite file."""

import asyncio
import errno
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeVar

from msgspec.structs import replace

from .....errors import LocalResourceError
from .....limits import STORED_SESSIONS
from ....backoff import Backoff
from .session_store import MAX_SESSIONS, SessionStoreBase, StoredSession

__all__ = ["SqliteSessionStore"]

T = TypeVar("T")

# seconds of the first and the longest delay before changes are written again after a failure
FIRST_RETRY, LONGEST_RETRY = 1.0, 30.0

log = logging.getLogger("fairlead.transport")

_COLUMNS = StoredSession.__struct_fields__
_SAVE = (
    f"INSERT OR REPLACE INTO sessions ({', '.join(_COLUMNS)})"
    f" VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_TOUCH = "UPDATE sessions SET used = ? WHERE key = ?"
_DELETE = "DELETE FROM sessions WHERE key = ?"
# Deletes the least recently used session of the client with most sessions.
_DROP_ONE = """
DELETE FROM sessions WHERE key = (
    SELECT key FROM sessions WHERE client = (
        SELECT client FROM sessions GROUP BY client ORDER BY count(*) DESC, min(used) LIMIT 1
    ) ORDER BY used LIMIT 1
)
"""


# A change of a session: its new content, its time of last use, or None if it was deleted.
Change = StoredSession | float | None


class SqliteSessionStore(SessionStoreBase):
    """Session store in a private file, accessed by a thread of its own.

    Several processes may share the file. Changes that cannot be written, for example because the
    disk is full, are kept in memory and written later.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_sessions: int = MAX_SESSIONS) -> None:
        self._path = Path(path)
        self._max = max_sessions
        # One thread: an SQLite connection must not be used by several at once.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fairlead-sessions")
        self._open: sqlite3.Connection | None = None
        self._unwritten: dict[str, Change] = {}  # changes by key; used by the thread only
        self._failing = False
        self._backoff = Backoff(FIRST_RETRY, LONGEST_RETRY)
        self._retry: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

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
        await self._change({session.key: session})

    async def load(self, key: str) -> StoredSession | None:
        query = f"SELECT {', '.join(_COLUMNS)} FROM sessions WHERE key = ?"

        def run() -> StoredSession | None:
            change = self._unwritten.get(key, 0.0)
            if not isinstance(change, float):
                return change
            row = self._opened().execute(query, (key,)).fetchone()
            return None if row is None else StoredSession(**dict(zip(_COLUMNS, row, strict=True)))

        return await self._run(run)

    async def touch(self, keys: list[str], used: float) -> None:
        await self._change(dict.fromkeys(keys, float(used)))

    async def delete(self, key: str) -> None:
        await self._change({key: None})

    async def expire(self, before: float) -> int:
        query = "DELETE FROM sessions WHERE used < ?"

        def run() -> int:
            try:
                with self._opened() as file:
                    return file.execute(query, (before,)).rowcount
            except (sqlite3.Error, OSError) as exc:
                self._failed(exc)
                return 0

        return await self._run(run)

    def close(self) -> None:
        """Finish pending writes and close the file."""
        if self._retry is not None:
            self._retry[1].cancel()
        self._thread.submit(self._end)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _change(self, changes: dict[str, Change]) -> None:
        def run() -> bool:
            for key, change in changes.items():
                self._remember(key, change)
            return self._write()

        if not await self._run(run):
            self._retry_later(asyncio.get_running_loop())

    def _remember(self, key: str, change: Change) -> None:
        earlier = self._unwritten.pop(key, 0.0)
        if isinstance(change, float) and not isinstance(earlier, float):
            change = None if earlier is None else replace(earlier, used=change)
        self._unwritten[key] = change
        if len(self._unwritten) > self._max:
            STORED_SESSIONS.hit()
            del self._unwritten[next(iter(self._unwritten))]

    def _write(self) -> bool:
        """Write all changes in one transaction; return False if they have to be written later."""
        changes = self._unwritten.items()
        saved = [one for _, one in changes if isinstance(one, StoredSession)]
        try:
            # As a context manager the connection commits, or rolls back after an exception.
            with self._opened() as file:
                file.executemany(
                    _SAVE, [[getattr(one, name) for name in _COLUMNS] for one in saved]
                )
                file.executemany(
                    _TOUCH, [(at, key) for key, at in changes if isinstance(at, float)]
                )
                file.executemany(_DELETE, [(key,) for key, one in changes if one is None])
                if saved:
                    self._drop_oldest(file)
        except (sqlite3.Error, OSError) as exc:
            self._failed(exc)
            return False
        if self._failing:
            log.warning("%s is writable again; wrote %d session changes", self._path, len(changes))
            self._failing, self.shortage = False, None
            self._backoff.reset()
        self._unwritten.clear()
        return True

    def _drop_oldest(self, file: sqlite3.Connection) -> None:
        (kept,) = file.execute("SELECT count(*) FROM sessions").fetchone()
        for _ in range(kept - self._max):
            STORED_SESSIONS.hit()
            file.execute(_DROP_ONE)

    def _failed(self, error: Exception) -> None:
        if _is_full(error):
            self.shortage = LocalResourceError(f"{self._path}: {error}", "disk space")
        if not self._failing:
            self._failing = True
            log.error("cannot write %s: %s; keeping changes in memory", self._path, error)

    def _retry_later(self, loop: asyncio.AbstractEventLoop) -> None:
        # A timer of a loop that has ended never fires.
        if self._retry is not None and self._retry[0] is loop:
            return

        def retry() -> None:
            self._retry = None
            loop.run_in_executor(self._thread, self._write).add_done_callback(written)

        def written(done: "asyncio.Future[bool]") -> None:
            if not done.cancelled() and not done.result():
                self._retry_later(loop)

        self._retry = loop, loop.call_later(self._backoff.next(), retry)

    def _opened(self) -> sqlite3.Connection:
        if self._open is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Created here with the right mode, because SQLite would use the umask.
            made = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                # An existing file may be readable by other users, but sessions are as sensitive as
                # credentials. SQLite creates its journal with the same mode.
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
        if self._unwritten and not self._write():
            log.error("%s was closed without %d session changes", self._path, len(self._unwritten))
        if self._open is not None:
            self._open.close()
            self._open = None


def _is_full(error: Exception) -> bool:
    match error:
        case sqlite3.Error(sqlite_errorcode=sqlite3.SQLITE_FULL):
            return True
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return True
    return False
