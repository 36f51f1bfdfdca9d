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
        self._known: dict[tuple[View, str], tuple[ParamHeader, ...]] = {}
        self._version = 0  # of the tools that they are of

    def of(self, tool: str, view: View) -> tuple[ParamHeader, ...]:
        """Return those of a tool, by the name that the view gives it; none if it has no such."""
        version = self._catalog.version(Kind.TOOLS)
        if version != self._version:
            self._known.clear()
            self._version = version
        marks = self._known.get((view, tool))
        if marks is None:
            marks = self._read(tool, view)
            if self._catalog.tool(tool, view) is not None:
                self._known[view, tool] = marks  # there are only so many
        return marks

    def forget(self) -> None:
        """Drop what is known for views that may be gone."""
        self._known.clear()

    def _read(self, tool: str, view: View) -> tuple[ParamHeader, ...]:
        definition = self._catalog.definition(tool, view)
        if definition is None or b"x-mcp-header" not in bytes(definition):
            return ()
        try:
            return param_headers(msgspec.json.decode(definition).get("inputSchema"))
        except (ValueError, AttributeError):
            return ()
