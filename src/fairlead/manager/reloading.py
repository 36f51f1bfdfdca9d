"""Following configuration files: what changes in them changes here, and nothing else is touched."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from .manager import Configured, MCPManager

__all__ = ["Reading", "Reloader", "apply_changes"]

log = logging.getLogger("fairlead.manager")

INTERVAL = 2.0  # seconds between looks


class Reading(Struct, frozen=True):
    """What the files say now."""

    wanted: Mapping[str, Configured]
    files: Sequence[str]  # to look at
    broken: frozenset[str] = frozenset()  # those that could not be read as a whole


async def apply_changes(manager: MCPManager, now: Reading) -> None:
    """Make a manager have exactly these servers; those that stay as they were are left alone.

    A file that cannot be read, perhaps because it is just being written, takes nothing away.
    """
    wanted = now.wanted
    have = {name: manager.get_configured(name) for name in manager.get_all_server_names()}
    gone = [
        name
        for name, old in have.items()
        if old is not None
        and (
            wanted[name].digest != old.digest
            if name in wanted
            else old.source.path not in now.broken
        )
    ]
    await asyncio.gather(*(manager.disconnect_server(name) for name in gone))
    new = {name: one for name, one in wanted.items() if name in gone or name not in have}
    if new:
        log.info("the configuration has changed: %s", ", ".join(sorted(new)))
        await manager.connect_servers(new, startup="background")


class Reloader:
    """Looks at files now and then, and has the manager follow them."""

    def __init__(
        self,
        manager: MCPManager,
        load: Callable[[], Reading],
        *,
        interval: float = INTERVAL,
    ) -> None:
        """`load` reads everything anew."""
        self._manager = manager
        self._load = load
        self._interval = interval
        self._task: asyncio.Task[None] | None = None
        self._seen: dict[str, tuple[int, int, int]] = {}

    def start(self) -> None:
        self._seen = _stamps(self._load().files)
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            if _stamps(self._seen) != self._seen:
                try:
                    now = self._load()
                    self._seen = _stamps(now.files)
                    await apply_changes(self._manager, now)
                except Exception:  # the next change may put it right
                    log.exception("the configuration could not be read again")


def _stamps(files: Iterable[str]) -> dict[str, tuple[int, int, int]]:
    """What tells one state of each file from another; a file that is gone has one too."""
    stamps: dict[str, tuple[int, int, int]] = {}
    for file in files:
        try:
            status = os.stat(file)
            stamps[file] = status.st_mtime_ns, status.st_size, status.st_ino
        except OSError:
            stamps[file] = 0, 0, 0
    return stamps
