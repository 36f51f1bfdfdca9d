"""The tools of all servers under unique names, updated as servers are added, changed and removed.

The catalog is rebuilt whenever a server connects. To keep this cheap, only new definitions are
named and converted; all others are merged from existing dictionaries.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Set
from operator import is_
from typing import Any

from ...protocol.targets.unique_names import Pair, assign_names, tool_names
from .tool import CallTool, DeferredMCPTool, MCPTool

__all__ = ["Listed", "ToolCatalog"]

log = logging.getLogger("fairlead.manager")

# (server, tools of the server, True if remembered from the last run)
Listed = tuple[str, list[dict[str, Any]], bool]


class ToolCatalog:
    """Catalog of tools, created from definitions. An unchanged tool remains the same object."""

    def __init__(self, call: CallTool, about: Callable[[str], Mapping[str, Any]]) -> None:
        """Create a catalog.

        `call` calls a tool. `about` returns the properties that all tools of a server share.
        """
        self.tools: list[MCPTool] = []
        self.by_name: dict[str, MCPTool] = {}
        self._call = call
        self._about = about
        self._offers: dict[str, _Offer] = {}
        # tools that have a different name, because their preferred name is taken
        self._renamed: dict[Pair, MCPTool] = {}

    def build(self, listed: Iterable[Listed]) -> list[MCPTool]:
        """Return all tools, sorted by name."""
        offers = {server: self._offer(server, tools, old) for server, tools, old in listed}
        if offers == self._offers:
            return self.tools
        self._offers = offers
        # Names in the order of servers are nearly sorted, which makes the final sort cheap.
        in_order = [offers[server] for server in sorted(offers)]
        by_name: dict[str, MCPTool] = {}
        clashes: set[str] = set()
        for offer in in_order:
            clashes.update(offer.clashes, by_name.keys() & offer.by_name.keys())
            by_name.update(offer.by_name)
        if clashes or self._renamed:
            by_name.update(self._settle(clashes, by_name.keys()))
        self.by_name = by_name
        self.tools = [by_name[name] for name in sorted(by_name)]
        return self.tools

    def _offer(self, server: str, definitions: list[dict[str, Any]], deferred: bool) -> "_Offer":
        old = self._offers.get(server)
        if old is not None and old.is_of(definitions, deferred):
            return old
        return _Offer(server, definitions, deferred, self._make(server, deferred), old)

    def _make(self, server: str, deferred: bool) -> "Make":
        kind, about = DeferredMCPTool if deferred else MCPTool, self._about(server)
        return lambda name, definition: kind(name, server, definition, self._call, **about)

    def _settle(self, clashes: Set[str], taken: Set[str]) -> dict[str, MCPTool]:
        """Return the tools that share a preferred name, under unique names."""
        rivals: dict[Pair, MCPTool] = {}
        wanted: dict[str, list[Pair]] = {}
        for offer in self._offers.values():
            for name in clashes:
                for tool in offer.wanting(name):
                    pair = tool.mcp_server_name, tool.mcp_tool_name
                    rivals[pair] = tool
                    wanted.setdefault(name, []).append(pair)
        settled: dict[str, MCPTool] = {}
        renamed: dict[Pair, MCPTool] = {}
        for pair, name in assign_names(wanted, taken).items():
            tool = rivals[pair]
            if tool.name != name:
                renamed[pair] = tool = self._rename(pair, tool, name)
            settled[name] = tool
        self._renamed = renamed
        return settled

    def _rename(self, pair: Pair, tool: MCPTool, name: str) -> MCPTool:
        old = self._renamed.get(pair)
        if old is not None and old.name == name:
            if old.source is tool.source and old.deferred == tool.deferred:
                return old
        else:
            log.info("%s of %s is named %s: %s is taken", pair[1], pair[0], name, tool.name)
        return self._make(pair[0], tool.deferred)(name, tool.source)


# creates a tool from its name and its definition
Make = Callable[[str, Mapping[str, Any]], MCPTool]


class _Offer:
    """A server's tools, with the names that they have if no other server uses those names."""

    def __init__(
        self,
        server: str,
        definitions: list[dict[str, Any]],
        deferred: bool,
        make: Make,
        before: "_Offer | None",
    ) -> None:
        listed: dict[str, dict[str, Any]] = {}
        for definition in definitions:
            tool = definition.get("name")
            if type(tool) is str and tool:
                # The first of several definitions with the same name is used.
                listed.setdefault(tool, definition)
        self.by_name: dict[str, MCPTool] = {}
        # tools of this server with the same preferred name
        self.clashes: dict[str, list[MCPTool]] = {}
        self._definitions = definitions
        self._deferred = deferred
        known = before.by_name if before is not None and before._deferred == deferred else {}
        for name, definition in zip(tool_names(server, listed), listed.values(), strict=True):
            old = known.get(name)
            tool = old if old is not None and old.source is definition else make(name, definition)
            if self.by_name.setdefault(name, tool) is not tool:
                self.clashes.setdefault(name, [self.by_name[name]]).append(tool)

    def is_of(self, definitions: list[dict[str, Any]], deferred: bool) -> bool:
        """Return True if this object was created from the same definition objects."""
        ours = self._definitions
        return deferred == self._deferred and (
            ours is definitions
            # Compared by identity, because comparing thousands of definitions is slow.
            or (len(ours) == len(definitions) and all(map(is_, ours, definitions)))
        )

    def wanting(self, name: str) -> Iterable[MCPTool]:
        """Return the tools with this preferred name."""
        if name in self.clashes:
            return self.clashes[name]
        return (self.by_name[name],) if name in self.by_name else ()
