"""Tools that a server had last time, for when it has not answered yet.

They count only for the same configuration: kept with a hash of the entry as it stands in the file,
before variables are put in, so no secret goes into it.

"""

import hashlib
import logging
import time
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ...client.server_entry import MCPServerEntry
from ...config.files.atomic_write import write_atomically
from ...config.paths import local_host_paths
from ...limits import TOOL_CACHE_BYTES
from ...wire import to_json

__all__ = ["CacheStore", "FileStore", "MCPToolCache", "MemoryStore", "entry_hash", "own_folder"]

VERSION = 1
LIFETIME = 30 * 24 * 3600.0
MAX_BYTES = TOOL_CACHE_BYTES.value

log = logging.getLogger("fairlead.manager")


class CacheStore(Protocol):
    """Where cached tools are kept. Each method may fail with `OSError`; nobody depends on it."""

    def read(self, key: str) -> bytes | None: ...
    def write(self, key: str, value: bytes) -> None: ...


class MemoryStore:
    """Keeps them as long as the program runs."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def read(self, key: str) -> bytes | None:
        return self._values.get(key)

    def write(self, key: str, value: bytes) -> None:
        self._values[key] = value


class FileStore:
    """One file for each server, replaced as a whole, readable by this user only."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or own_folder() / "tools"

    def read(self, key: str) -> bytes | None:
        try:
            with open(self._folder / f"{key}.json", "rb") as file:
                return file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None

    def write(self, key: str, value: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self._folder / f"{key}.json", value)


def own_folder() -> Path:
    """Our folder for what we can do without."""
    return Path(local_host_paths().own_cache)


class _Cached(Struct):
    version: int
    entry: str
    saved: float  # seconds since the epoch
    tools: list[dict[str, Any]] | None  # None: it did not start


class MCPToolCache:
    """Tool definitions per server. What cannot be read or written is a miss, never an error."""

    def __init__(self, store: CacheStore | None = None) -> None:
        self._store = store if store is not None else FileStore()
        self.others = store if store is not None else FileStore(own_folder())  # beside the tools

    def get(
        self, name: str, entry: "MCPServerEntry | dict[str, Any]"
    ) -> list[dict[str, Any]] | None:
        """The tools that this server had, if that is known for this very entry."""
        cached = self._read(name, entry)
        if cached is None or cached.tools is None:
            return None
        return [tool for tool in cached.tools if isinstance(tool.get("name"), str)]

    def failed(self, name: str, entry: "MCPServerEntry | dict[str, Any]") -> bool:
        """Whether it did not start when it was last tried, so that it is not worth waiting for."""
        cached = self._read(name, entry)
        return cached is not None and cached.tools is None

    def _read(self, name: str, entry: "MCPServerEntry | dict[str, Any]") -> _Cached | None:
        try:
            raw = self._store.read(_key(name))
            if raw is None or len(raw) > MAX_BYTES:
                return None
            cached = msgspec.json.decode(raw, type=_Cached)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            log.debug("no cached tools of %s: %s", name, exc)
            return None
        fresh = 0 <= time.time() - cached.saved < LIFETIME
        if cached.version != VERSION or not fresh or cached.entry != entry_hash(entry):
            return None
        return cached

    def set(
        self,
        name: str,
        entry: "MCPServerEntry | dict[str, Any]",
        tools: list[dict[str, Any]] | None,
    ) -> None:
        """Remember the tools of a server; None that it did not start."""
        value = to_json(_Cached(VERSION, entry_hash(entry), time.time(), tools))
        if len(value) > MAX_BYTES:
            TOOL_CACHE_BYTES.hit()
            log.debug("the tools of %s are too many to be kept", name)
            return
        try:
            self._store.write(_key(name), value)
        except OSError as exc:
            log.debug("the tools of %s could not be kept: %s", name, exc)


def entry_hash(entry: "MCPServerEntry | dict[str, Any]") -> str:
    """What tells one configuration of a server from another."""
    plain = msgspec.to_builtins(entry)
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


def _key(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
