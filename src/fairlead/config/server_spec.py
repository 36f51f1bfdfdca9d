"""Servers that can be connected: an entry, its tool filter,
and the function that resolves its variables.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Raw, Struct

from ..client.server_entry import MCPServerEntry, read_entry
from ..protocol.json_edit import members_of, string_of
from ..protocol.targets.name_forms import normalize_name
from ..wire.quote_text import quoted
from .found_server import Source

__all__ = ["ServerSpec", "entries_by_name", "read_spec"]

_ENTRY_KEYS = {"command", "url"}


class ServerSpec(Struct, frozen=True, kw_only=True):
    """A server that can be connected: its entry as written in the file,
    and its resolver function.
    """

    entry: MCPServerEntry
    # returns the entry with its variables replaced; None if the entry is used unchanged
    resolve: Callable[[], Awaitable[MCPServerEntry]] | None = None
    # returns new headers when the server refuses the old ones; only with `headersHelper`
    renew_headers: Callable[[], Awaitable[Mapping[str, str]]] | None = None
    source: Source = Source()
    only_tools: tuple[str, ...] | None = None  # None means all tools
    without_tools: tuple[str, ...] = ()
    startup_timeout: float | None = None  # milliseconds; None for the entry's timeout
    digest: str = ""  # hash that changes with the entry
    settings: Mapping[str, Any] = {}  # settings that override the common settings of all servers

    @property
    def own_settings(self) -> dict[str, Any]:
        """Return this server's settings, including the era and the timeout in its entry."""
        era = {} if self.entry.era == "auto" else {"era": self.entry.era}
        limit = self.startup_timeout or self.entry.timeout
        timeout = {} if limit is None else {"connect_timeout": limit / 1000}
        return {**era, **self.settings, **timeout}

    def has_tool(self, name: str) -> bool:
        """Return True if the entry's tool filter admits a tool.

        Excluded names match in any spelling, included names only exactly, so that an equivalent
        spelling cannot bypass the filter.
        """
        if self.only_tools is not None and name not in self.only_tools:
            return False
        spelled = normalize_name(name).casefold()
        return all(normalize_name(one).casefold() != spelled for one in self.without_tools)

    @property
    def filters_tools(self) -> bool:
        """Return True if the entry has a tool filter."""
        return self.only_tools is not None or bool(self.without_tools)

    def permitted(self, tools: list[Raw]) -> list[Raw]:
        """Return the encoded tools that the tool filter admits."""
        if not self.filters_tools:
            return tools
        # Names are decoded as they are in lists and calls. A tool without a name is never admitted.
        named = [(string_of((members_of(tool) or {}).get("name")), tool) for tool in tools]
        return [tool for name, tool in named if name is not None and self.has_tool(name)]

    def allowed(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the tools that the tool filter admits; the same list if there is no filter."""
        if not self.filters_tools:
            return tools
        return [tool for tool in tools if self.has_tool(str(tool.get("name")))]


def entries_by_name(given: Any) -> Mapping[str, Any]:
    """Return the entries of servers, given by name or as the content of a configuration file.

    Raises:
        TypeError: The value is not a mapping.
    """
    if not isinstance(given, Mapping):
        raise TypeError(
            f"servers must be a dict with the entry of each name, not {quoted(given)}: pass "
            'for example {"notes": {"command": "uvx", "args": ["notes-server"]}}'
        )
    for key in ("mcpServers", "servers"):
        inner = given.get(key)
        if len(given) == 1 and isinstance(inner, Mapping) and not _ENTRY_KEYS & inner.keys():
            return inner
    return given


def read_spec(
    config: MCPServerEntry | ServerSpec | dict[str, Any], source: Source | None
) -> ServerSpec:
    """Return the specification of a server that is given in any of these forms.

    Raises:
        ConfigError: The value is not a valid entry.
    """
    if isinstance(config, ServerSpec):
        return config
    return ServerSpec(entry=read_entry(config), source=source or Source())
