"""Editing of Fairlead's own `mcp.json`, one entry at a time."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ...client.server_entry import MCPServerEntry
from ...errors import ConfigError
from ...observe.safe_display import json_text
from ...store.atomic_write import write_atomically
from ..files.config_reader import ConfigReader, read_file
from ..files.file_lock import lock_folder
from ..files.formats import parse
from ..host_files.host import items_at
from ..hosts import HOSTS
from ..paths import HostPaths, local_host_paths
from ..validate import validate_server_config

__all__ = ["ConfigFile", "shortest_form"]


class ConfigFile:
    """The `mcp.json` of a user or project. Other programs' files are never changed.

    A file with comments is rejected, because they would be lost when it is written.
    """

    def __init__(self, path: str | os.PathLike[str], *, own: bool = False) -> None:
        """Prepare to edit a file, which need not exist. `own` allows any folder name.

        Raises:
            ConfigError: The path does not belong to a Fairlead file.
        """
        self.path = Path(os.path.abspath(path))
        if self.path.name != "mcp.json" or not (own or self.path.parent.name in _FOLDERS):
            raise ConfigError(_NOT_OURS, path=str(self.path))

    @classmethod
    def of_user(cls, machine: HostPaths | None = None) -> "ConfigFile":
        machine = machine or local_host_paths()
        # `FAIRLEAD_HOME` may place the file in a folder of any name.
        return cls(machine.join(machine.own_config[0], "mcp.json"), own=True)

    @classmethod
    def of_project(cls, cwd: str | os.PathLike[str]) -> "ConfigFile":
        return cls(Path(cwd) / ".fairlead" / "mcp.json")

    @classmethod
    def of_nearest_project(cls, machine: HostPaths | None = None) -> "ConfigFile":
        """Return the project file in the nearest folder that has one, up to the repository root.

        If no folder has a project file, return a new file for the current folder.
        """
        machine = machine or local_host_paths()
        files = [cls.of_project(folder) for folder in machine.upwards()]
        return next((file for file in files if file.path.exists()), cls.of_project(machine.cwd))

    def entries(self) -> dict[str, Any]:
        """Return the entries as written in the file."""
        return dict(self._servers(self._read()))

    def add(self, name: str, entry: MCPServerEntry | Mapping[str, Any]) -> None:
        """Add a new entry.

        Raises:
            ConfigError: The entry is invalid or the name is taken.
        """
        self._put(name, entry, new=True)

    def update(self, name: str, entry: MCPServerEntry | Mapping[str, Any]) -> None:
        """Replace an existing entry.

        Raises:
            ConfigError: The entry is invalid or no entry has this name.
        """
        self._put(name, entry, new=False)

    def _put(self, name: str, entry: MCPServerEntry | Mapping[str, Any], *, new: bool) -> None:
        if problems := validate_server_config(name, entry):
            raise ConfigError("; ".join(problems))

        def change(data: dict[str, Any]) -> None:
            if not new:
                self._present(data, name)
            elif name in self._servers(data):
                raise ConfigError(f'Server "{name}": already exists', path=str(self.path))
            self._servers(data)[name] = shortest_form(entry)

        self._change(change)

    def remove(self, name: str) -> None:
        """Remove an entry.

        Raises:
            ConfigError: No entry has this name.
        """

        def change(data: dict[str, Any]) -> None:
            self._present(data, name)
            del self._servers(data)[name]
            # A name that stays in these lists would affect a later entry with the same name.
            for key in ("disabledServers", "enabledServers"):
                _without(data, key, name)

        self._change(change)

    def enable(self, name: str) -> None:
        """Enable a server in this file, or a server that another program configures."""
        self._switch(name, on=True)

    def disable(self, name: str) -> None:
        """Disable a server, whichever file configures it."""
        self._switch(name, on=False)

    def _switch(self, name: str, *, on: bool) -> None:
        lists = ("enabledServers", "disabledServers")
        wanted, other = lists if on else reversed(lists)

        def change(data: dict[str, Any]) -> None:
            _without(data, other, name)
            entry = self._servers(data).get(name)
            if not isinstance(entry, dict):
                data[wanted] = [*(n for n in items_at(data, wanted) if n != name), name]
            elif on:
                entry.pop("enabled", None)
            else:
                entry["enabled"] = False

        self._change(change)

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        if not self.path.parent.exists():
            # Applied once without writing, so that an invalid change does not create the folder.
            change(self._read())
            self.path.parent.mkdir(parents=True, exist_ok=True)
        # If two commands changed the file at the same time, one change would be lost.
        with lock_folder(self.path.parent):
            data = self._read()
            change(data)
            # A symbolic link into a dotfiles folder stays a link: the target file is replaced.
            target = Path(os.path.realpath(self.path))
            self._refuse_others(target)
            # A new file is private, because entries may contain tokens.
            mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
            content = json_text(data, indent=2) + "\n"
            write_atomically(target, content.encode(), mode=mode, durable=True)

    def _refuse_others(self, target: Path) -> None:
        """Raise `ConfigError` if a symbolic link leads to another program's file."""
        machine, files = local_host_paths(self.path.parent.parent), ConfigReader()
        theirs = (
            place.path
            for host in HOSTS
            if host.dialect != "fairlead"
            for place in host.places(machine, files)
        )
        if target != self.path and str(target) in map(os.path.realpath, theirs):
            raise ConfigError(_NOT_OURS, path=str(target))

    def _read(self) -> dict[str, Any]:
        content = read_file(str(self.path))
        if content is None or not content.strip():
            return {"mcpServers": {}}
        data = parse(str(self.path), content, "json").data
        # `parse` accepts comments and trailing commas, which the writer below would drop.
        try:
            json.loads(content)
        except ValueError:
            reason = "comments or trailing commas would be lost: edit the file by hand"
            raise ConfigError(reason, path=str(self.path), line=1) from None
        return data

    def _servers(self, data: dict[str, Any]) -> dict[str, Any]:
        servers = data.setdefault("mcpServers", {})
        if not isinstance(servers, dict):
            raise ConfigError("`mcpServers` must be a map", path=str(self.path), line=1)
        return servers

    def _present(self, data: dict[str, Any], name: str) -> None:
        if name not in self._servers(data):
            raise ConfigError(f'Server "{name}": not in this file', path=str(self.path))


_FOLDERS = (".fairlead", "fairlead")
_NOT_OURS = "not a Fairlead configuration file: other programs' files are never changed"


def shortest_form(entry: MCPServerEntry | Mapping[str, Any]) -> dict[str, Any]:
    """Return the type of an entry and the fields that differ from their defaults.

    A mapping is returned unchanged, as a copy.
    """
    if isinstance(entry, Mapping):
        return dict(entry)
    usual = {
        field.encode_name: field.default_factory()
        if field.default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT
        else field.default
        for field in msgspec.structs.fields(entry)
    }
    fields = msgspec.to_builtins(entry)
    return {"type": entry.type} | {
        key: value for key, value in fields.items() if key != "type" and value != usual.get(key)
    }


def _without(data: dict[str, Any], key: str, name: str) -> None:
    if name in (names := items_at(data, key)):
        data[key] = [n for n in names if n != name]
