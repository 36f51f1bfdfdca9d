"""The tools of all servers under names of their own, kept as servers come, change and go."""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from .naming import Pair, assign_names
from .tools import Call, DeferredMCPTool, MCPTool

__all__ = ["Catalog", "Listed"]

Listed = tuple[str, list[dict[str, Any]], bool]  # server, its tools, whether from last time


class Catalog:
    """Makes tools from definitions; one that has not changed stays the same object."""

    def __init__(self, call: Call, about: Callable[[str], Mapping[str, Any]]) -> None:
        """`call` calls a tool; `about` are the facts about a server that its tools carry."""
        self.tools: list[MCPTool] = []
        self.by_name: dict[str, MCPTool] = {}
        self._call = call
        self._about = about
        self._made: dict[Pair, MCPTool] = {}
        self._listed: list[Listed] = []

    def build(self, listed: Iterable[Listed]) -> list[MCPTool]:
        """All tools, in the order of their names."""
        listed = list(listed)
        if _same(listed, self._listed):
            return self.tools
        self._listed = listed
        wanted: dict[Pair, tuple[dict[str, Any], bool]] = {}
        for server, definitions, deferred in listed:
            for definition in definitions:
                tool = definition.get("name")
                if type(tool) is str and tool:
                    wanted.setdefault((server, tool), (definition, deferred))
        names = assign_names(wanted)
        about = {server: self._about(server) for server, _, _ in listed}
        made = {
            pair: self._tool(pair, names[pair], definition, deferred, about[pair[0]])
            for pair, (definition, deferred) in wanted.items()
        }
        self._made = made
        self.tools = sorted(made.values(), key=_name)
        self.by_name = {tool.name: tool for tool in self.tools}
        return self.tools

    def _tool(
        self,
        pair: Pair,
        name: str,
        definition: dict[str, Any],
        deferred: bool,
        about: Mapping[str, Any],
    ) -> MCPTool:
        old = self._made.get(pair)
        if (
            old is not None
            and old.source is definition
            and old.name == name
            and old.deferred == deferred
        ):
            return old
        kind = DeferredMCPTool if deferred else MCPTool
        return kind(name, pair[0], definition, self._call, **about)


_name = attrgetter("name")


def _same(one: list[Listed], other: list[Listed]) -> bool:
    """Whether the same servers have the very same lists."""
    return len(one) == len(other) and all(
        a[0] == b[0] and a[1] is b[1] and a[2] == b[2] for a, b in zip(one, other, strict=True)
    )
