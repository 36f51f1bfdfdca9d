"""Cache of the tools that servers listed in earlier runs, for use until they respond.

Cached tools apply only to the same configuration. They are stored with a hash of the entry as
written in the file, before variables are substituted, so the hash does not depend on secrets.
"""

import hashlib
import logging
import time
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ...client.server_entry import MCPServerEntry
from ...config.paths import local_host_paths
from ...limits import TOOL_CACHE_BYTES
from ...store.atomic_write import write_atomically
from ...wire import to_json

__all__ = [
    "CacheStore",
    "CachedServer",
    "FileStore",
    "MCPToolCache",
    "MemoryStore",
    "entry_hash",
    "own_folder",
]

VERSION = 1  # version of the file format
LIFETIME = 30 * 24 * 3600.0  # seconds for which cached tools are used
MAX_BYTES = TOOL_CACHE_BYTES.value

log = logging.getLogger("fairlead.manager")


class CacheStore(Protocol):
    """Storage for cached data. Methods may raise `OSError`, which loses only the cache entry."""

    def read(self, key: str) -> bytes | None: ...
    def write(self, key: str, value: bytes) -> None: ...


class MemoryStore:
    """Storage in memory, which lasts as long as the program."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def read(self, key: str) -> bytes | None:
        return self._values.get(key)

    def write(self, key: str, value: bytes) -> None:
        self._values[key] = value


class FileStore:
    """Storage in one file per key, which is replaced atomically and readable by this user only."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or own_folder() / "tools"

    def read(self, key: str) -> bytes | None:
        try:
            with open(self._folder / f"{key}.json", "rb") as file:
                # One byte more than the limit, so that a file that is too large is recognised.
                return file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None

    def write(self, key: str, value: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self._folder / f"{key}.json", value)


def own_folder() -> Path:
    """Return the folder for Fairlead's own cached data."""
    return Path(local_host_paths().own_cache)


class CachedServer(Struct):
    """The outcome of the last start of a server."""

    version: int
    entry: str
    saved: float  # seconds since the epoch
    tools: list[dict[str, Any]] | None  # None: the server failed to start
    protocol_version: str = ""


class MCPToolCache:
    """Cached tool definitions by server. Failures to read or write are logged, not raised."""

    def __init__(self, store: CacheStore | None = None) -> None:
        self._store = store if store is not None else FileStore()
        # store for cached data other than tools
        self.others = store if store is not None else FileStore(own_folder())

    def get(
        self, name: str, entry: "MCPServerEntry | dict[str, Any]"
    ) -> list[dict[str, Any]] | None:
        """Return the tools that this server listed with exactly this entry, or None if unknown."""
        cached = self.last(name, entry)
        if cached is None or cached.tools is None:
            return None
        return [tool for tool in cached.tools if isinstance(tool.get("name"), str)]

    def failed(self, name: str, entry: "MCPServerEntry | dict[str, Any]") -> bool:
        """Return True if the server did not start last time, so callers need not wait."""
        cached = self.last(name, entry)
        return cached is not None and cached.tools is None

    def last(self, name: str, entry: "MCPServerEntry | dict[str, Any]") -> CachedServer | None:
        """Return the outcome of the last start with exactly this entry, or None if unknown."""
        try:
            raw = self._store.read(_key(name))
            if raw is None or len(raw) > MAX_BYTES:
                return None
            cached = msgspec.json.decode(raw, type=CachedServer)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            log.debug("the cached tools of %s could not be read: %s", name, exc)
            return None
        # A negative age means that the clock was set back.
        fresh = 0 <= time.time() - cached.saved < LIFETIME
        if cached.version != VERSION or not fresh or cached.entry != entry_hash(entry):
            return None
        return cached

    def set(
        self,
        name: str,
        entry: "MCPServerEntry | dict[str, Any]",
        tools: list[dict[str, Any]] | None,
        protocol_version: str = "",
    ) -> None:
        """Store the tools of a server; None records that it did not start."""
        cached = CachedServer(VERSION, entry_hash(entry), time.time(), tools, protocol_version)
        value = to_json(cached)
        if len(value) > MAX_BYTES:
            TOOL_CACHE_BYTES.hit()
            log.debug("the tools of %s are too large for the cache", name)
            return
        try:
            self._store.write(_key(name), value)
        except OSError as exc:
            log.debug("the tools of %s could not be cached: %s", name, exc)


def entry_hash(entry: "MCPServerEntry | dict[str, Any]") -> str:
    """Return a hash that identifies the configuration of a server."""
    plain = msgspec.to_builtins(entry)
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


def _key(name: str) -> str:
    # A hash, because the name of a server need not be a valid file name.
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
