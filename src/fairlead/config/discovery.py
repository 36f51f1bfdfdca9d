"""All configured servers of a machine, in one look (CFG-03): what there is, and why."""

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field, structs

from ..client.server_entry import MCPServerEntry, MCPStdioServerConfig
from .files.config_reader import ConfigReader
from .found_server import FoundServer, Problem, Source
from .host_files.host import names_at
from .hosts import HOSTS, Host, find_servers
from .hosts import fairlead as own
from .paths import HostPaths, local_host_paths
from .server_filters import ExaFilter, ServerFilter
from .validate import is_server_name
from .variables.variable_syntax import looks_like_variables

__all__ = ["DiscoveredServers", "Filtered", "load_all_mcp_configs"]

log = logging.getLogger("fairlead.manager")


class Filtered(Struct, frozen=True):
    """A server that a filter left out."""

    name: str
    path: str
    reason: str


class DiscoveredServers(Struct, kw_only=True):
    """Everything that was found; `configs` is what to connect to, as it stands in the files."""

    configs: dict[str, MCPServerEntry] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    found: dict[str, FoundServer] = field(default_factory=dict)  # the same names, with everything
    disabled: dict[str, FoundServer] = field(default_factory=dict)  # names that are switched off
    duplicates: dict[str, str] = field(default_factory=dict)  # name -> whose server it is, too
    exa_api_keys: list[str] = field(default_factory=list)
    filtered: list[Filtered] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # those that exist
    unreadable: list[str] = field(default_factory=list)  # of them: nothing in them could be used
    looked_for: list[str] = field(default_factory=list)  # files and folders, also missing ones
    # Every place that speaks of a name, strongest first, and what became of it
    places: dict[str, list[tuple[FoundServer, str]]] = field(default_factory=dict)

    def __repr__(self) -> str:  # keys and raw values do not belong into logs
        return f"<DiscoveredServers {sorted(self.configs)}, {len(self.warnings)} warnings>"


def load_all_mcp_configs(
    cwd: str | os.PathLike[str] | None = None,
    *,
    enable_project_config: bool = True,
    filter_exa: bool = True,
    filters: Sequence[ServerFilter] = (),
    env: Mapping[str, str] | None = None,
    home: str | os.PathLike[str] | None = None,
    platform: str | None = None,
    hosts: Sequence[Host] = HOSTS,
) -> DiscoveredServers:
    """Read the files of every program that configures MCP servers. Never raises for what they say.

    Nothing is expanded, run or connected here; `resolve` does that for one server, when it is time.
    """
    machine = local_host_paths(cwd, env=env, home=home, platform=platform)
    files = ConfigReader()
    found = [
        one
        for one in _read(hosts, machine, files)
        if enable_project_config or one.level != "project"
    ]
    switches = _Switches(machine, files, enable_project_config)
    every: list[ServerFilter] = [*([ExaFilter()] if filter_exa else []), *filters]
    loading = _ServerCollector(machine, files, switches, every)
    for one in found:
        loading.take(one)
    loading.result.warnings = files.problems
    loading.result.files = files.read
    loading.result.unreadable = files.unreadable
    loading.result.looked_for = files.looked_for
    return loading.result


def _read(hosts: Sequence[Host], machine: HostPaths, files: ConfigReader) -> Iterator[FoundServer]:
    for host in hosts:
        try:
            yield from find_servers(host, machine, files)
        except Exception as exc:  # one reader that stumbles costs its program only
            log.warning("reading the files of %s failed: %s", host.title, type(exc).__name__)
            files.problem(host.title, 1, f"its files could not be read ({type(exc).__name__})")


class _Switches:
    """`disabledServers` and `enabledServers` of our own files."""

    def __init__(self, machine: HostPaths, files: ConfigReader, with_project: bool) -> None:
        self.off: dict[str, str] = {}
        self.on: set[str] = set()
        for place in own.user_places(machine, files):
            document = files.document(place.path)
            if document is not None:
                names = names_at(document.data, "disabledServers")
                self.off.update(dict.fromkeys(names, place.path))
                self.on.update(names_at(document.data, "enabledServers"))
        for place in own.project_places(machine, files) if with_project else ():
            # A project may hide what it does not want; what runs is the user's to say.
            document = files.document(place.path)
            if document is not None:
                for name in names_at(document.data, "disabledServers"):
                    if name not in self.on:
                        self.off.setdefault(name, place.path)

    def why_off(self, found: FoundServer) -> str | None:
        if found.name in self.off:
            return f"hidden by `disabledServers` in {self.off[found.name]}"
        if found.enabled or found.name in self.on:
            return None
        return found.notes[-1] if found.notes else "switched off"


class _ServerCollector:
    """The servers taken so far; strongest come first, and the first of a name has it."""

    def __init__(
        self,
        machine: HostPaths,
        files: ConfigReader,
        switches: _Switches,
        filters: Sequence[ServerFilter],
    ) -> None:
        self.result = DiscoveredServers()
        self._machine = machine
        self._files = files
        self._switches = switches
        self._filters = filters
        self._first: dict[str, FoundServer] = {}
        self._known: dict[Any, FoundServer] = {}  # by what they reach

    def take(self, found: FoundServer) -> None:
        what = self._outcome(found)
        self.result.places.setdefault(found.name, []).append((found, what))

    def _outcome(self, found: FoundServer) -> str:
        result, name = self.result, found.name
        off = self._switches.why_off(found)
        removed = self._filter(found) if off is None else None
        if name in self._first:
            return f"not used: {self._first[name].place} comes first"
        self._first[name] = found
        if not is_server_name(name):
            self._files.problem(
                found.path,
                found.line,
                f"Server {name[:100]!r}: only letters, digits, _ - . : belong"
                " into a name; it is used all the same",
                harmless=True,
            )
        if off is not None:
            result.disabled[name] = found
            return f"not used: {off}"
        if removed is not None:
            result.filtered.append(Filtered(name, found.path, removed))
            return f"not used: {removed}"
        if not found.entry.enabled:  # `enabledServers` said otherwise
            entry = structs.replace(found.entry, enabled=True)
            found = structs.replace(found, entry=entry, enabled=True)
        same = self._known.setdefault(_reaches(found), found)
        # A file of a project, which may never be approved, takes nothing from the user.
        if same.host != found.host and (same.level != "project" or found.level == "project"):
            result.duplicates[name] = same.name
            return f'not used: it is the server "{same.name}" of {same.place}'
        result.found[name] = found
        result.configs[name] = found.entry
        result.sources[name] = found.source
        return "used"

    def _filter(self, found: FoundServer) -> str | None:
        """Why a filter leaves it out. Keys are taken from every place, also from hidden ones."""
        for one in self._filters:
            try:
                removal = one(found, self._machine.env)
            except Exception as exc:  # somebody else's code
                log.warning("a filter failed for server %s: %s", found.name, type(exc).__name__)
                reason = f'Server "{found.name}": a filter failed ({type(exc).__name__})'
                self._files.problem(found.path, found.line, reason)
                continue
            if removal is not None:
                known = self.result.exa_api_keys
                known += [key for key in removal.keys if key not in known]
                return removal.reason
        return None


_VARIABLE = re.compile(r"\$\{\{?\s*(?:env:|secrets\.)?(\w+)\s*\}?\}|\{env:(\w+)\}|\$(?:env:)?(\w+)")


def _reaches(found: FoundServer) -> Any:
    """What an entry reaches, however it is written: two that agree in this are one server."""
    entry = found.entry
    more = tuple((lookup.field, lookup.key, lookup.variable) for lookup in found.lookups)
    if isinstance(entry, MCPStdioServerConfig):
        words = tuple(_plain(word) for word in (entry.command, *entry.args))
        return ("stdio", words, entry.cwd, _pairs(entry.env), more)
    url = _plain(entry.url)
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    url = f"{scheme.lower()}{separator}{host.lower()}{slash}{path}".rstrip("/")
    return ("remote", url, _pairs({k.lower(): v for k, v in entry.headers.items()}), more)


def _pairs(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, _plain(value)) for name, value in values.items()))


def _plain(text: str) -> str:
    """The same spelling for every program's way to name a variable."""
    if not looks_like_variables(text):
        return text
    return _VARIABLE.sub(lambda match: f"${{{match[1] or match[2] or match[3]}}}", text)
