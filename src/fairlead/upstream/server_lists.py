"""Lists of a server: tools, prompts, resources and templates, as the server encoded them."""

import time
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final

import msgspec
from msgspec import Raw

from ..protocol.targets.list_kind import ListKind

__all__ = ["NEEDED_CAPABILITY", "ServerLists"]

NEEDED_CAPABILITY: Final = {
    ListKind.TOOLS: "tools",
    ListKind.PROMPTS: "prompts",
    ListKind.RESOURCES: "resources",
    ListKind.TEMPLATES: "resources",
}


class ServerLists:
    """The last complete lists of one server, and the errors of lists that could not be read."""

    def __init__(self, kinds: Iterable[ListKind], *, for_client: bool) -> None:
        """`kinds` are the lists that are requested from the server.

        If `for_client`, tools are called through the `MCPClient`, which needs their definitions.
        """
        self.kinds = tuple(kinds)
        self.for_client = for_client
        self.items: dict[ListKind, list[Raw]] = {}
        self.errors: dict[ListKind, Exception] = {}
        self.on_changed: Callable[[ListKind], None] = lambda kind: None
        self.version = 0  # number of changes, without the first read of each list
        self.listed_at = -inf  # time at which a list was last read
        self._tools: tuple[list[Raw], list[dict[str, Any]]] | None = None

    def add_kinds(self, kinds: Iterable[ListKind]) -> list[ListKind]:
        """Keep additional lists; return the kinds that were not kept before."""
        new = [kind for kind in kinds if kind not in self.kinds]
        self.kinds = (*self.kinds, *new)
        return new

    @property
    def error(self) -> Exception | None:
        """The error of the last attempt to read a list, or None if it succeeded."""
        return next(iter(self.errors.values()), None)

    def put(self, kind: ListKind, items: list[Raw]) -> None:
        """Replace a list."""
        before = self.items.get(kind)
        if before is not None and list(map(bytes, before)) != list(map(bytes, items)):
            self.version += 1
        self.items[kind] = items
        self.listed_at = time.monotonic()
        self.errors.pop(kind, None)
        self.on_changed(kind)

    def fail(self, kind: ListKind, error: Exception) -> None:
        """Record the error of a list that could not be read; keep the previous list."""
        self.errors[kind] = error
        self.on_changed(kind)

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """The tools that have a name, decoded; None before they were listed."""
        raws = self.items.get(ListKind.TOOLS)
        if raws is None:
            return None
        # Decoded once for each list that the server sends.
        if self._tools is None or self._tools[0] is not raws:
            self._tools = raws, [tool for raw in raws if (tool := _named(raw)) is not None]
        return self._tools[1]


def _named(raw: Raw) -> dict[str, Any] | None:
    try:
        tool = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return tool if isinstance(tool, dict) and isinstance(tool.get("name"), str) else None
