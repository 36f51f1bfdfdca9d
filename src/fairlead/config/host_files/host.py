"""Descriptions of host programs: files, variable syntax and settings that disable servers."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ..files.config_reader import ConfigReader
from ..files.formats import Document
from ..found_server import Level
from ..paths import HostPaths

__all__ = [
    "ConfigLocation",
    "Host",
    "WhyOff",
    "items_at",
    "named_items",
    "names_at",
    "project",
    "servers_at",
    "user",
]


class ConfigLocation(Struct, frozen=True):
    """The path of a configuration file, which need not exist."""

    path: str
    level: Level = "user"
    folder: str | None = None  # the project folder; None for the current folder


# A function that returns why a setting outside of an entry disables the entry, or None.
WhyOff: TypeAlias = Callable[[str, ConfigLocation, dict[str, Any]], str | None]

# A function that yields the name and the value of each entry in a document. Values are unchecked.
Servers: TypeAlias = Callable[[Document, ConfigLocation, HostPaths], Iterable[tuple[str, Any]]]


def servers_at(*keys: str) -> Servers:
    """Return a function that reads entries from the map or list under the first existing key.

    A dot in a key means one level of nesting, or is part of the key itself.
    """

    def servers(
        document: Document, place: ConfigLocation, machine: HostPaths
    ) -> Iterable[tuple[str, Any]]:
        for key in keys:
            found = document.data.get(key)
            if found is None and "." in key:
                found = document.data
                for step in key.split("."):
                    found = found.get(step) if isinstance(found, dict) else None
            if found is not None:
                return named_items(key, found)
        return ()

    return servers


def named_items(key: str, found: Any) -> Iterable[tuple[str, Any]]:
    """Return the named items of a map (by key) or of a list (by each item's `name`)."""
    if isinstance(found, dict):
        return [(str(name), raw) for name, raw in found.items()]
    if isinstance(found, list):
        return [
            (str(raw["name"]) if isinstance(raw, dict) and raw.get("name") else f"{key}[{n}]", raw)
            for n, raw in enumerate(found)
        ]
    # A value of another type is returned as an entry, so that the reader reports it.
    return [(key, found)]


class Host(Struct, frozen=True, kw_only=True):
    """A host program. Its files are listed in order of precedence, highest first."""

    id: str
    title: str
    places: Callable[[HostPaths, ConfigReader], Iterable[ConfigLocation]]
    servers: Servers = servers_at("mcpServers")
    dialect: str = "unknown"
    timeout_unit: Literal["ms", "s"] = "ms"
    url_means: Literal["http", "sse"] = "http"  # used for entries that have a URL but no type
    # Converts an entry to the common field names; returns None if the entry is not an MCP server.
    adapt: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
    switches: Callable[[HostPaths, ConfigReader], WhyOff] | None = None


def user(*paths: str) -> list[ConfigLocation]:
    return [ConfigLocation(path, "user") for path in paths]


def project(*paths: str) -> list[ConfigLocation]:
    return [ConfigLocation(path, "project") for path in paths]


def names_at(data: dict[str, Any], key: str) -> list[str]:
    """Return the strings in a list, such as a list of disabled servers."""
    return [name for name in items_at(data, key) if isinstance(name, str)]


def items_at(data: dict[str, Any], key: str) -> list[Any]:
    """Return the list under a key; empty if there is none."""
    items = data.get(key)
    return items if isinstance(items, list) else []
