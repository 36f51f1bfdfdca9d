"""Which arguments of merged tools travel as headers too, as their definitions say."""

import msgspec

from ..protocol.headers import ParamHeader, param_headers
from .catalog import Catalog, Kind
from .views import View

__all__ = ["MergedMarks"]


class MergedMarks:
    """The marked arguments of all tools in a catalog, read when they are asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[str, tuple[ParamHeader, ...]] = {}
        self._version = 0  # of the tools that they are of

    def of(self, tool: str) -> tuple[ParamHeader, ...]:
        version = self._catalog.version(Kind.TOOLS)
        if version != self._version:
            self._known.clear()
            self._version = version
        marks = self._known.get(tool)
        if marks is None:
            marks = self._read(tool)
            if self._catalog.tool(tool, View.everything()) is not None:
                self._known[tool] = marks  # there are only so many
        return marks

    def _read(self, tool: str) -> tuple[ParamHeader, ...]:
        definition = self._catalog.definition(tool, View.everything())
        if definition is None or b"x-mcp-header" not in bytes(definition):
            return ()
        try:
            return param_headers(msgspec.json.decode(definition).get("inputSchema"))
        except (ValueError, AttributeError):
            return ()
