"""Arguments that travel in headers as well (stateless HTTP), with a relay in between.

A stateless server over HTTP wants them from whoever asks it, and we are asked by clients that know
of no headers. A server that is reached in another way cannot hold them against the arguments, so we
do. What is known comes from the lists of tools that pass through.
"""

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from ..client.list_budget import ListBudget
from ..client.mirroring import Mirrored
from ..protocol.headers import ParamHeader

if TYPE_CHECKING:
    from ..interceptor import Exchange
    from ..peer import Peer

__all__ = ["Marks", "says_them"]

_MARK: Final = b"x-mcp-header"


class Marks:
    """The marked arguments of the tools of one server."""

    def __init__(self) -> None:
        self._mirrored = Mirrored()
        self._looking = False  # there have been some, so every list is read

    def of(self, tool: str) -> tuple[ParamHeader, ...]:
        """What a call of this tool repeats in headers, as far as is known."""
        return self._mirrored.of(tool)

    def learn(self, result: Raw) -> str | None:
        """Look at a page of `tools/list`; returns where the next one begins."""
        text = bytes(result)
        # Most servers have none, and their lists need not be read. (An escape may spell one.)
        self._looking = self._looking or _MARK in text or b"\\u" in text
        if not self._looking and b'"nextCursor"' not in text:
            return None
        try:
            page = msgspec.json.decode(text, type=_Page)
        except (msgspec.DecodeError, RecursionError):
            return None
        if self._looking:  # a tool whose marks are wrong is for clients to hide
            self._mirrored.listing(lambda _: None).page(page.tools)
        return page.cursor

    async def ask(self, peer: "Peer", timeout: float) -> None:
        """Ask the server for its tools: it misses headers that nobody knew of.

        Raises:
            FairleadError: it does not say.
        """
        cursor: str | None = None
        budget, seen = ListBudget("tools/list"), set[str]()
        while True:
            params = {} if cursor is None else {"cursor": cursor}
            page = await peer.request("tools/list", params, timeout=timeout)
            budget.page(bytes(page))
            cursor = self.learn(page)
            if not cursor or cursor in seen:
                return
            seen.add(cursor)


def says_them(exchange: "Exchange") -> bool:
    """Whether a client sends such headers itself."""
    return exchange.caller.stateless and exchange.transport.transport_type == "http"


class _Page(Struct):
    tools: list[Raw] = []
    cursor: str | None = msgspec.field(default=None, name="nextCursor")
