"""Detection of code changes by polling the modification times of Python files."""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["CodeFiles", "folders_of"]

EVERY = 0.4  # seconds between two checks
# Editors write a file in several steps, so files must be unchanged for this many seconds.
SETTLE = 0.1
# Maximum number of watched files, for a server that runs in a large folder such as the home folder.
MOST = 5_000
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}

Times = dict[str, tuple[int, int]]


class CodeFiles:
    """Python files in a set of folders, checked for changes by their modification times."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = tuple(dict.fromkeys(folders))
        self._known = self._look()

    async def changed(self) -> str:
        """Wait until a file is changed, added or removed, and return its path."""
        while True:
            await asyncio.sleep(EVERY)
            now = await asyncio.to_thread(self._look)
            if now != self._known:
                break
        while now != (later := await self._look_again()):
            now = later
        known, self._known = self._known, now
        return min(name for name, _ in known.items() ^ now.items())

    async def _look_again(self) -> Times:
        await asyncio.sleep(SETTLE)
        return await asyncio.to_thread(self._look)

    def _look(self) -> Times:
        found: Times = {}
        for folder in self.folders:
            for path in _python_files(folder):
                try:
                    facts = os.stat(path)
                except OSError:
                    continue  # the file was just removed
                found[path] = facts.st_mtime_ns, facts.st_size
                if len(found) >= MOST:
                    return found
        return found


def _python_files(top: str) -> Iterator[str]:
    """Yield the Python files below a folder, top level first."""
    seen = 0
    for folder, folders, names in os.walk(top):
        seen += 1
        # A folder with `pyvenv.cfg` is a virtual environment.
        if seen > MOST or (folder != top and "pyvenv.cfg" in names):
            folders.clear()
            continue
        folders[:] = sorted(f for f in folders if f not in _SKIPPED and not f.startswith("."))
        yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".py"))


def folders_of(target: str | None, modules: Sequence[str]) -> list[str]:
    """Return the folders that contain a server's code and its modules, without importing them."""
    found = [_folder_of_module(name) for name in modules]
    if target is not None:
        place = target if os.path.exists(target) else target.rpartition(":")[0] or target
        if place.endswith(".py") or os.sep in place or os.path.isfile(place):
            found.insert(0, str(Path(place).resolve().parent))
        else:
            found.insert(0, _folder_of_module(place))
    return found


def _folder_of_module(name: str) -> str:
    here = os.getcwd()
    spec = PathFinder.find_spec(name.partition(".")[0], [here, *sys.path])
    if spec is not None and spec.submodule_search_locations:
        return os.path.abspath(next(iter(spec.submodule_search_locations)))
    if spec is not None and spec.origin is not None and os.path.isfile(spec.origin):
        return os.path.dirname(os.path.abspath(spec.origin))
    return here
