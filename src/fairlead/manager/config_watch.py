"""Following configuration files: what changes in them changes here, and nothing else is touched."""

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
from .connect_report import ConnectReport, Startup

__all__ = [
    "ConfigSnapshot",
    "FileStamp",
    "ReloadTarget",
    "Reloader",
    "apply_changes",
    "file_stamps",
    "follow_files",
    "snapshot_reader",
]

log = logging.getLogger("fairlead.manager")

INTERVAL = 1.0  # seconds between looks


class ReloadTarget(Protocol):
    """A manager, as far as its servers are replaced."""

    def get_all_server_names(self) -> list[str]: ...
    def get_configured(self, name: str) -> ServerSpec | None: ...
    async def disconnect_server(self, name: str) -> None: ...
    async def connect_servers(
        self, configs: Mapping[str, ServerSpec], /, *, startup: Startup | None = None
    ) -> ConnectReport: ...


class ConfigSnapshot(Struct, frozen=True):
    """What the files say now."""

    wanted: Mapping[str, ServerSpec]
    files: Sequence[str]  # to look at; those that do not exist may appear
    broken: frozenset[str] = frozenset()  # those that could not be read as a whole


def snapshot_reader(
    cwd: str | Path,
    *,
    trust: Trust | None = None,
    inputs: Mapping[str, str] | None = None,
    **options: Any,
) -> Callable[[], ConfigSnapshot]:
    """A function that reads all files anew.

    Options are those of `discover_and_load_mcp_tools`; what is not about files has no effect.
    """

    def read() -> ConfigSnapshot:
        found = load_configured(cwd, **options)
        wanted = configured_servers(found, trust=trust, inputs=inputs)
        return ConfigSnapshot(wanted, found.looked_for, frozenset(found.unreadable))

    return read


async def apply_changes(manager: ReloadTarget, now: ConfigSnapshot) -> None:
    """Make a manager have the servers of these files; those that stay as they were are left alone.

    A file that cannot be read, perhaps because it is just being written, changes nothing. Neither
    are servers touched that come from no file.
    """
    wanted = now.wanted
    have = {name: manager.get_configured(name) for name in manager.get_all_server_names()}
    gone = [
        name
        for name, old in have.items()
        if old is not None
        and old.digest
        and old.source.path not in now.broken
        and (name not in wanted or wanted[name].digest != old.digest)
    ]
    new = {name: one for name, one in wanted.items() if name in gone or name not in have}
    if gone or new:
        log.info("the configuration has changed: %s", ", ".join(sorted({*gone, *new})))
    await asyncio.gather(*(manager.disconnect_server(name) for name in gone))
    if new:
        await manager.connect_servers(new, startup="background")


class Reloader:
    """Looks at files now and then, and has the manager follow them."""

    def __init__(
        self,
        manager: ReloadTarget,
        load: Callable[[], ConfigSnapshot],
        *,
        interval: float | None = None,
    ) -> None:
        """`load` reads everything anew, in a thread."""
        self._manager = manager
        self._load = load
        self._interval = INTERVAL if interval is None else interval
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _follow(self) -> None:
        await follow_files((), self._look, self._interval)

    async def _look(self, files: Sequence[str]) -> Sequence[str]:
        try:
            reading = await asyncio.to_thread(self._load)
            await apply_changes(self._manager, reading)
            return reading.files
        except Exception:  # the next change may put it right
            log.exception("the configuration could not be read again")
            return files


async def follow_files(
    files: Sequence[str],
    look: Callable[[Sequence[str]], Awaitable[Sequence[str]]],
    interval: float,
) -> None:
    """Call `look` now, and whenever the files have changed; it returns those to follow then.

    A file may be written in several steps, or the old one be removed first: `look` is called when
    they were the same twice. Files that are new to us count as changed, so they are looked at once
    more: they may have changed meanwhile.
    """
    seen: dict[str, FileStamp] | None = None  # what the files were when `look` was called
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
