"""Discovery of all servers configured on a machine;
each entry has the reason why it is or is not used.
"""

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

__all__ = ["UNUSED", "USED", "DiscoveredServers", "Filtered", "load_all_mcp_configs"]

USED = "used"  # outcome for an entry that is connected, in `DiscoveredServers.places`
UNUSED = "not used: "  # prefix of the outcome for any other entry; the reason follows it

log = logging.getLogger("fairlead.manager")


class Filtered(Struct, frozen=True):
    """A server that a filter removed."""

    name: str
    path: str
    reason: str


class DiscoveredServers(Struct, kw_only=True):
    """The result of discovery. `configs` contains the entries to connect to, not yet resolved."""

    configs: dict[str, MCPServerEntry] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    # the servers in `configs` with all their details
    found: dict[str, FoundServer] = field(default_factory=dict)
    disabled: dict[str, FoundServer] = field(default_factory=dict)  # servers that are disabled
    # name of a duplicate -> name of the equal server that is used instead
    duplicates: dict[str, str] = field(default_factory=dict)
    exa_api_keys: list[str] = field(default_factory=list)
    filtered: list[Filtered] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # existing files
    unreadable: list[str] = field(default_factory=list)  # existing files without any usable content
    looked_for: list[str] = field(default_factory=list)  # searched files and folders
    # All entries with each name and their outcomes, highest precedence first.
    places: dict[str, list[tuple[FoundServer, str]]] = field(default_factory=dict)

    # The fields contain API keys and raw entries, and a repr may be written to logs.
    def __repr__(self) -> str:
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
    """Read the files of every host program that configures MCP servers.

    Errors in the files are returned as warnings, never raised. Variables are not expanded, and no
    command is run; `resolve` does that for one server, just before it is connected.
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
        # An error while reading one host's files must not hide the servers of other hosts.
        except Exception as exc:
            log.warning("reading the files of %s failed: %s", host.title, type(exc).__name__)
            files.problem(
                host.title, 1, f"the files of {host.title} cannot be read ({type(exc).__name__})"
            )


class _Switches:
    """Names in `disabledServers` and `enabledServers` of Fairlead's own files."""

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
            # A project may hide servers but not enable them: the user decides which servers run.
            document = files.document(place.path)
            if document is not None:
                for name in names_at(document.data, "disabledServers"):
                    if name not in self.on:
                        self.off.setdefault(name, place.path)

    def why_off(self, found: FoundServer) -> str | None:
        if found.name in self.off:
            return f"listed in `disabledServers` of {self.off[found.name]}"
        if found.enabled or found.name in self.on:
            return None
        return found.notes[-1] if found.notes else "disabled"


class _ServerCollector:
    """Collector of servers.

    Entries are added in order of precedence; the first entry with a name wins.
    """

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
        self._known: dict[Any, FoundServer] = {}  # by connection target

    def take(self, found: FoundServer) -> None:
        what = self._outcome(found)
        self.result.places.setdefault(found.name, []).append((found, what))

    def _outcome(self, found: FoundServer) -> str:
        result, name = self.result, found.name
        off = self._switches.why_off(found)
        removed = self._filter(found) if off is None else None
        if name in self._first:
            return f"{UNUSED}{self._first[name].place} takes precedence"
        self._first[name] = found
        if not is_server_name(name):
            self._files.problem(
                found.path,
                found.line,
                f"Server {name[:100]!r}: a name should contain only letters, digits, _ - . :"
                " (the server is used anyway)",
                harmless=True,
            )
        if off is not None:
            result.disabled[name] = found
            return f"{UNUSED}{off}"
        if removed is not None:
            result.filtered.append(Filtered(name, found.path, removed))
            return f"{UNUSED}{removed}"
        # The user's `enabledServers` overrides `enabled` in the entry.
        if not found.entry.enabled:
            entry = structs.replace(found.entry, enabled=True)
            found = structs.replace(found, entry=entry, enabled=True)
        same = self._known.setdefault(_reaches(found), found)
        # The user might not approve a project's entry, so it must not replace the user's own entry.
        if same.host != found.host and (same.level != "project" or found.level == "project"):
            result.duplicates[name] = same.name
            return f'{UNUSED}the same server is configured as "{same.name}" in {same.place}'
        result.found[name] = found
        result.configs[name] = found.entry
        result.sources[name] = found.source
        return USED

    def _filter(self, found: FoundServer) -> str | None:
        """Return the reason why a filter removes a server, or None.

        API keys are also collected from entries that are not used because another entry has the
        same name.
        """
        for one in self._filters:
            try:
                removal = one(found, self._machine.env)
            # Filters are the caller's code: if a filter fails, the server is kept.
            except Exception as exc:
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
    """Return a key that is equal for entries of the same server."""
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
    """Return a string with all variables in one spelling, regardless of the host's syntax."""
    if not looks_like_variables(text):
        return text
    return _VARIABLE.sub(lambda match: f"${{{match[1] or match[2] or match[3]}}}", text)
