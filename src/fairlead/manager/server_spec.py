"""Servers that a manager may connect, and the report of connecting them."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ..client.server_entry import MCPServerEntry, read_entry
from ..config.found_server import Source
from ..protocol.targets.name_forms import normalize_name
from .tools.tool import MCPTool

__all__ = ["ConnectReport", "ServerSpec", "Startup", "read_spec"]

Startup: TypeAlias = Literal["wait", "background"]


class ServerSpec(Struct, frozen=True, kw_only=True):
    """A server that may be connected: its entry as written in the file, and how to fill it in."""

    entry: MCPServerEntry
    resolve: Callable[[], Awaitable[MCPServerEntry]] | None = None  # None: as it is
    source: Source = Source()
    only_tools: tuple[str, ...] | None = None  # None: all of them
    without_tools: tuple[str, ...] = ()
    startup_timeout: float | None = None  # milliseconds; None: the entry's own
    digest: str = ""  # changes with the entry

    def has_tool(self, name: str) -> bool:
        """Return True if the entry lets a tool through.

        A tool is left out in any spelling of its name, and let in only as it is written.
        """
        if self.only_tools is not None and name not in self.only_tools:
            return False
        spelled = normalize_name(name).casefold()
        return all(normalize_name(one).casefold() != spelled for one in self.without_tools)

    def allowed(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the tools that the entry lets through; the list itself without a filter."""
        if self.only_tools is None and not self.without_tools:
            return tools
        return [tool for tool in tools if self.has_tool(str(tool.get("name")))]


class ConnectReport(Struct, frozen=True, kw_only=True):
    """The outcome of connecting, as far as it was known when that returned."""

    tools: list[MCPTool]
    errors: list[dict[str, str]]  # {path, error}
    connected_servers: list[str]


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
