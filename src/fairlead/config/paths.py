"""Paths of configuration, data and cache folders for a platform, home and environment.

`platformdirs` supports only the machine it runs on. Finding host programs' files needs the same
rules for any platform, home and environment, so Fairlead's own folders follow these rules too.
"""

import ntpath
import os
import posixpath
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

__all__ = ["HostPaths", "local_host_paths"]


class HostPaths(Struct, frozen=True, kw_only=True):
    """Platform, home, environment and current folder of a machine, not necessarily this one."""

    platform: str  # a value of `sys.platform`: linux, darwin, win32
    home: str
    env: Mapping[str, str]
    cwd: str
    root: str = ""  # prefix of system folders such as /etc; set by tests

    @property
    def is_windows(self) -> bool:
        return self.platform == "win32"

    @property
    def path(self) -> Any:
        """Return the platform's path module: `posixpath` or `ntpath`."""
        return ntpath if self.is_windows else posixpath

    def join(self, first: str, *parts: str) -> str:
        return str(self.path.normpath(self.path.join(first, *parts)))

    def at_home(self, *parts: str) -> str:
        return self.join(self.home, *parts)

    def of_system(self, *parts: str, linux: str, win32: str, darwin: str = "") -> str:
        """Return a path in a system folder, which depends on the platform.

        `linux` is used for all platforms that have no argument.
        """
        folder = {"darwin": darwin, "win32": win32}.get(self.platform) or linux
        return self.join(self.root + folder, *parts)

    def in_project(self, *parts: str) -> str:
        return self.join(self.cwd, *parts)

    def variable(self, name: str, default: str = "") -> str:
        """Return the folder that an environment variable names.

        Relative paths are ignored, as the XDG Base Directory Specification requires.
        """
        value = self.env.get(name, "")
        return value if value and self.path.isabs(value) else default

    @property
    def xdg_config(self) -> str:
        return self.variable("XDG_CONFIG_HOME", self.at_home(".config"))

    @property
    def app_data(self) -> str:
        return self.variable("APPDATA", self.at_home("AppData", "Roaming"))

    @property
    def local_app_data(self) -> str:
        return self.variable("LOCALAPPDATA", self.at_home("AppData", "Local"))

    @property
    def app_support(self) -> str:
        """Return the folder where desktop programs keep their settings."""
        if self.is_windows:
            return self.app_data
        if self.platform == "darwin":
            return self.at_home("Library", "Application Support")
        return self.xdg_config

    @property
    def config(self) -> str:
        """Return the folder where command-line programs keep their settings.

        This is `~/.config` also on macOS, not `~/Library/Application Support`.
        """
        return self.app_data if self.is_windows else self.xdg_config

    @property
    def own_config(self) -> tuple[str, ...]:
        """Return Fairlead's folders for the user's settings;
        Fairlead writes to the first folder.
        """
        if moved := self.variable("FAIRLEAD_HOME"):
            return (moved,)
        folders = [self.join(self.config, "fairlead")]
        # This folder is read as well, because it is the usual folder for settings on macOS.
        if self.platform == "darwin":
            folders.append(self.join(self.app_support, "fairlead"))
        return tuple(folders)

    @property
    def own_data(self) -> str:
        """Return Fairlead's folder for private data: approvals, tapes and tokens."""
        if moved := self.variable("FAIRLEAD_HOME"):
            return self.join(moved, "data")
        if self.is_windows:
            return self.join(self.local_app_data, "fairlead")
        if self.platform == "darwin":
            return self.join(self.app_support, "fairlead")
        return self.join(
            self.variable("XDG_DATA_HOME", self.at_home(".local", "share")), "fairlead"
        )

    @property
    def own_cache(self) -> str:
        """Return Fairlead's folder for data that can be fetched or computed again."""
        if moved := self.variable("FAIRLEAD_HOME"):
            return self.join(moved, "cache")
        if self.is_windows:
            return self.join(self.local_app_data, "fairlead", "Cache")
        usual = ("Library", "Caches") if self.platform == "darwin" else (".cache",)
        return self.join(self.variable("XDG_CACHE_HOME", self.at_home(*usual)), "fairlead")

    def upwards(self) -> Iterator[str]:
        """Yield the project's folders: the current folder and its parents up to the repository
        root.

        Outside a repository only the current folder is yielded, because its parents may belong to
        other users or projects.
        """
        above = []
        folder = self.cwd
        while True:
            above.append(folder)
            # `.git` is a folder, or a file in worktrees and submodules.
            if os.path.lexists(self.join(folder, ".git")):
                yield from above
                return
            parent = self.path.dirname(folder)
            if parent in (folder, "") or folder == self.home:
                yield self.cwd
                return
            folder = parent


def local_host_paths(
    cwd: str | os.PathLike[str] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    home: str | os.PathLike[str] | None = None,
    platform: str | None = None,
) -> HostPaths:
    """Return this machine's paths; arguments replace individual values."""
    known = os.environ if env is None else env
    kind = platform or sys.platform
    if kind.startswith(("linux", "freebsd", "openbsd", "cygwin")):
        kind = "linux"
    where = os.fspath(home) if home is not None else _home(known, kind)
    machine = HostPaths(platform=kind, home=where, env=known, cwd=_here(where))
    return structs.replace(machine, cwd=machine.in_project("" if cwd is None else os.fspath(cwd)))


def _here(home: str) -> str:
    try:
        return os.getcwd()
    except OSError:  # the current folder was removed
        return home


def _home(env: Mapping[str, str], platform: str) -> str:
    names = ("USERPROFILE", "HOME") if platform == "win32" else ("HOME",)
    return next((env[name] for name in names if env.get(name)), os.path.expanduser("~"))
