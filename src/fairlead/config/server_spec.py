"""Servers that may be connected: an entry, its tool filter, and how variables are filled in."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Raw, Struct

from ..client.server_entry import MCPServerEntry, read_entry
from ..protocol.json_edit import members_of, string_of
from ..protocol.targets.name_forms import normalize_name
from .found_server import Source

__all__ = ["ServerSpec", "read_spec"]


class ServerSpec(Struct, frozen=True, kw_only=True):
    """A server that may be connected: its entry as written in the file, and how to fill it in."""

    entry: MCPServerEntry
    resolve: Callable[[], Awaitable[MCPServerEntry]] | None = None  # None: as it is
    source: Source = Source()
    only_tools: tuple[str, ...] | None = None  # None: all of them
    without_tools: tuple[str, ...] = ()
    startup_timeout: float | None = None  # milliseconds; None: the entry's own
    digest: str = ""  # changes with the entry
    settings: Mapping[str, Any] = {}  # of its connections, in place of those for all servers

    def has_tool(self, name: str) -> bool:
        """Return True if the entry lets a tool through.

        A tool is left out in any spelling of its name, and let in only as it is written.
        """
        if self.only_tools is not None and name not in self.only_tools:
            return False
        spelled = normalize_name(name).casefold()
        return all(normalize_name(one).casefold() != spelled for one in self.without_tools)

    @property
    def filters_tools(self) -> bool:
        """Whether the entry leaves tools out."""
        return self.only_tools is not None or bool(self.without_tools)

    def permitted(self, tools: list[Raw]) -> list[Raw]:
        """Return the encoded tools that the entry lets through."""
        if not self.filters_tools:
            return tools
        # The name is read as lists and calls read it; one that has none cannot be let through.
        named = [(string_of((members_of(tool) or {}).get("name")), tool) for tool in tools]
        return [tool for name, tool in named if name is not None and self.has_tool(name)]

    def allowed(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the tools that the entry lets through; the list itself without a filter."""
        if not self.filters_tools:
            return tools
        return [tool for tool in tools if self.has_tool(str(tool.get("name")))]


def read_spec(
    config: MCPServerEntry | ServerSpec | dict[str, Any], source: Source | None
) -> ServerSpec:
    """Return the specification of a server that is configured in any of these forms.

    Raises:
        ConfigError: it is not an entry.
    """
    if isinstance(config, ServerSpec):
        return config
    return ServerSpec(entry=read_entry(config), source=source or Source())
