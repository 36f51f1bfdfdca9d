"""What there is to know about one host program: its files, its spelling, its switches."""

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
    "named_items",
    "names_at",
    "project",
    "servers_at",
    "user",
]


class ConfigLocation(Struct, frozen=True):
    """A file that may exist."""

    path: str
    level: Level = "user"
    folder: str | None = None  # of the project it belongs to; None: the current one


# Why an entry is switched off elsewhere than in itself, by its name, place and text; None if not.
WhyOff: TypeAlias = Callable[[str, ConfigLocation, dict[str, Any]], str | None]

# Pairs of a name and its entry as it stands in the document; the entry may be anything.
Servers: TypeAlias = Callable[[Document, ConfigLocation, HostPaths], Iterable[tuple[str, Any]]]


def servers_at(*keys: str) -> Servers:
    """Entries in a map or a list under the first of these keys that is there.

    A dot in a key is a step down; a file that has the dotted key itself is understood too.
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
    """A map by its keys, a list by the `name` of its items."""
    if isinstance(found, dict):
        return [(str(name), raw) for name, raw in found.items()]
    if isinstance(found, list):
        return [
            (str(raw["name"]) if isinstance(raw, dict) and raw.get("name") else f"{key}[{n}]", raw)
            for n, raw in enumerate(found)
        ]
    return [(key, found)]  # reported as an entry that is none


class Host(Struct, frozen=True, kw_only=True):
    """One host program. Files are listed with the strongest first."""

    id: str
    title: str
    places: Callable[[HostPaths, ConfigReader], Iterable[ConfigLocation]]
    servers: Servers = servers_at("mcpServers")
    dialect: str = "unknown"
    timeout_unit: Literal["ms", "s"] = "ms"
    url_means: Literal["http", "sse"] = "http"  # when an entry with a url names no type
    # Into the spelling that everybody understands; None for what is no server of ours.
    adapt: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
    switches: Callable[[HostPaths, ConfigReader], WhyOff] | None = None


def user(*paths: str) -> list[ConfigLocation]:
    return [ConfigLocation(path, "user") for path in paths]


def project(*paths: str) -> list[ConfigLocation]:
    return [ConfigLocation(path, "project") for path in paths]


def names_at(data: dict[str, Any], key: str) -> list[str]:
    """Return the texts of a list, such as one of servers that are switched off."""
    names = data.get(key)
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
