"""Arguments that travel in headers as well, as the tools of a server want it (stateless HTTP).

What a call sends is decided by the last `tools/list`. A tool whose marks break the rules cannot be
called over HTTP, so it is hidden.
"""

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Raw, Struct

from ..protocol.headers import ParamHeader, param_headers

__all__ = ["Listing", "Mirrored"]

_MARK = b"x-mcp-header"


class Mirrored:
    """The marked arguments of each tool, by the last list."""

    def __init__(self) -> None:
        self._marks: dict[str, tuple[ParamHeader, ...]] = {}

    def of(self, tool: str) -> tuple[ParamHeader, ...]:
        """What a call of this tool has to repeat in headers."""
        return self._marks.get(tool, ())

    def listing(self, reject: Callable[[str], None]) -> "Listing":
        """A new list begins. `reject` learns of each tool that is hidden, and why."""
        return Listing(self, reject)


class Listing:
    """One list of tools, page by page. Its first page already counts, for whoever stops there."""

    def __init__(self, mirrored: Mirrored, reject: Callable[[str], None]) -> None:
        self._mirrored = mirrored
        self._reject = reject
        self._found: dict[str, tuple[ParamHeader, ...]] = {}

    def page(self, tools: Iterable[Raw]) -> list[Raw]:
        """Learn from a page; returns the tools that can be used."""
        return [tool for tool in tools if self._learn(tool)]

    def over(self) -> None:
        """That was the last page: tools that are gone need not be known any longer."""
        self._mirrored._marks = self._found

    def _learn(self, item: Raw) -> bool:
        try:
            tool = msgspec.json.decode(item, type=_Tool)
            marks = param_headers(msgspec.json.decode(tool.schema)) if _may_mark(item) else ()
        except (msgspec.DecodeError, RecursionError):
            return True  # whoever reads it says what is wrong with it
        except ValueError as exc:
            self._reject(f"{tool.name!r} cannot be called over HTTP: {exc}")
            return False
        self._mirrored._marks.pop(tool.name, None)
        if marks:
            self._found[tool.name] = self._mirrored._marks[tool.name] = marks
        return True


class _Tool(Struct):
    name: str
    schema: Raw = msgspec.field(default=Raw(b"{}"), name="inputSchema")


def _may_mark(tool: Raw) -> bool:
    """Whether it is worth a look: most tools have no marks, and JSON can spell one otherwise."""
    text = bytes(tool)
    return _MARK in text or b"\\u" in text
