"""Which arguments of a tool travel as headers; found out once for each tool."""

from typing import TYPE_CHECKING

import msgspec

from ..protocol.headers import ParamHeader, param_headers

if TYPE_CHECKING:
    from .registry import MCPToolRegistry

__all__ = ["Marks"]


class Marks:
    """The marked arguments of the tools of a registry."""

    def __init__(self, registry: "MCPToolRegistry") -> None:
        self._registry = registry
        self._known: dict[str, tuple[object, tuple[ParamHeader, ...]]] = {}

    def of(self, name: str) -> tuple[ParamHeader, ...]:
        known = self._known.get(name)
        entry = self._registry.listing.get(name)
        if entry is None:
            return ()
        if known is None or known[0] is not entry:
            marks = param_headers(msgspec.json.decode(entry.definition.input_schema))
            known = self._known[name] = entry, marks
        return known[1]
