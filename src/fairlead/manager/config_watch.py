"""Watching configuration files, and updating a manager's servers after changes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from ..config.configured_servers import configured_servers, load_configured
from ..config.files.config_reader import FileStamp, stamp_of
from ..config.server_spec import ServerSpec
from ..config.trust import Trust
from .connect_configured import ServerConnector

__all__ = ["FileStamp", "Reloader", "follow_files", "snapshot_reader"]

log = logging.getLogger("fairlead.manager")

INTERVAL = 1.0  # seconds between two checks of the configuration files


class ReloadTarget(ServerConnector, Protocol):
    """The methods of a manager that are needed to replace its servers."""

    def get_all_server_names(self) -> list[str]: ...
    def get_configured(self, name: str) -> ServerSpec | None: ...
    def update_settings(self, specs: Mapping[str, ServerSpec], /) -> None: ...
    async def disconnect_server(self, name: str) -> None: ...


class ConfigSnapshot(Struct, frozen=True):
    """The content of the configuration files at a point in time."""

    wanted: Mapping[str, ServerSpec]
    files: Sequence[str]  # files to watch, including those that do not exist yet
    broken: frozenset[str] = frozenset()  # files that could not be parsed


def snapshot_reader(
    cwd: str | Path,
    *,
    trust: Trust | None = None,
    inputs: Mapping[str, str] | None = None,
    **options: Any,
) -> Callable[[], ConfigSnapshot]:
    """Return a function that reads all configuration files.

    Accepts the options of `discover_and_load_mcp_tools` and ignores those that do not affect files.
    """

    def read() -> ConfigSnapshot:
        found = load_configured(cwd, **options)
        wanted = configured_servers(found, trust=trust, inputs=inputs)
        return ConfigSnapshot(wanted, found.looked_for, frozenset(found.unreadable))

    return read


async def apply_changes(manager: ReloadTarget, now: ConfigSnapshot) -> None:
    """Connect and disconnect servers to match the files in `now`.

    Unchanged servers, and servers that do not come from a file, stay connected. So do servers of
    which only settings changed, which apply from then on. If a file cannot be
    read, perhaps because it is being written, its servers stay unchanged.
    """
    wanted = now.wanted
    have = {name: manager.get_configured(name) for name in manager.get_all_server_names()}
    gone = [
        name
        for name, old in have.items()
        if old is not None
        # A spec without a digest does not come from a file.
        and old.digest
        and old.source.path not in now.broken
        and (name not in wanted or wanted[name].digest != old.digest)
    ]
    new = {name: one for name, one in wanted.items() if name in gone or name not in have}
    if gone or new:
        log.info("the configuration of these servers changed: %s", ", ".join(sorted({*gone, *new})))
    same = {name: wanted[name] for name, old in have.items() if _is_same(old, wanted.get(name))}
    manager.update_settings(same)
    await asyncio.gather(*(manager.disconnect_server(name) for name in gone))
    if new:
        await manager.connect_servers(new, startup="background")


def _is_same(old: ServerSpec | None, now: ServerSpec | None) -> bool:
    """Return True if both are the same entry of a file, perhaps with other settings."""
    return old is not None and now is not None and bool(old.digest) and old.digest == now.digest


class Reloader:
    """Task that checks files periodically and applies their changes to a manager."""

    def __init__(
        self,
        manager: ReloadTarget,
        load: Callable[[], ConfigSnapshot],
        *,
        interval: float | None = None,
    ) -> None:
        """Create a reloader. `load` reads all files; it is called in a thread."""
        self._manager = manager
        self._load = load
        self._interval = INTERVAL if interval is None else interval
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            follow_files((), self._look, self._interval)
        )

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _look(self, files: Sequence[str]) -> Sequence[str]:
        try:
            reading = await asyncio.to_thread(self._load)
            await apply_changes(self._manager, reading)
            return reading.files
        # keeps watching, because the next change to the files may fix the error
        except Exception:
            log.exception(
                "the configuration could not be reloaded; it is read again after a change"
            )
            return files


async def follow_files(
    files: Sequence[str],
    look: Callable[[Sequence[str]], Awaitable[Sequence[str]]],
    interval: float,
) -> None:
    """Call `look` now, and again after each change to the files. `look` returns the files to watch.

    A file may be written in several steps, or be removed and created again. Therefore `look` is
    called only after two consecutive checks found the same state. Files that are watched for the
    first time count as changed, because they may have changed after they were read.
    """
    seen: dict[str, FileStamp] | None = None  # the files' stamps when `look` was last called
    before: dict[str, FileStamp] | None = None
    while True:
        now = await asyncio.to_thread(file_stamps, files)
        if seen is None or (now != seen and now == before):
            seen = now
            files = await look(files)
        before = now
        await asyncio.sleep(interval)


def file_stamps(files: Iterable[str]) -> dict[str, FileStamp]:
    """Return the stamp of each file."""
    return {file: stamp_of(file) for file in files}
