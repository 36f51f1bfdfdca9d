"""A fake connection to a server that only serves lists and records requests."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from msgspec import Raw

from fairlead.protocol.caller import Caller
from fairlead.wire import Notification

__all__ = ["ListingConnection"]


class ListingConnection:
    """A connection that serves the lists `items`, by method, in pages of `page_size` items.

    An exception in `items` is raised instead of returning a list.
    """

    def __init__(
        self,
        items: dict[str, Any] | None = None,
        *,
        stateless: bool = False,
        capabilities: str = '{"tools":{},"prompts":{},"resources":{}}',
        opened_for: Caller | None = None,
        page_size: int = 100,
    ) -> None:
        self.items: dict[str, Any] = items or {}
        self.stateless = stateless
        self.agreement: Any = SimpleNamespace(capabilities=capabilities.encode())
        self.opened_for = opened_for
        self.page_size = page_size
        self.peer = self.outbound = self
        self.alive = True
        self.variant: int | None = None
        self.listeners: list[Callable[[Notification], None]] = []
        self.active = asyncio.Event()
        self.requests: list[tuple[str, Any]] = []
        self.timeouts: set[float] = set()
        self.malformed = False  # if True, lists are returned as numbers instead of arrays
        # awaited before each page is returned
        self.answering: Callable[[], Awaitable[object]] | None = None

    def activate(self) -> None:
        self.active.set()

    async def wait_until_active(self) -> None:
        await self.active.wait()

    def announce(self, method: str = "notifications/tools/list_changed") -> None:
        """Deliver a notification of a change."""
        for listener in self.listeners:
            listener(Notification(method))

    def count(self, method: str) -> int:
        """Return how often a method was requested."""
        return [asked for asked, _ in self.requests].count(method)

    async def request(self, method: str, params: Any = None, *, timeout: float) -> Raw:
        """Answer a request as `Peer.request` does."""
        self.requests.append((method, params))
        self.timeouts.add(timeout)
        if self.answering is not None:
            await self.answering()
        items = self.items.get(method, ())
        if isinstance(items, BaseException):
            raise items
        begin = int((params or {}).get("cursor", 0))
        page: dict[str, Any] = {_member(method): list(items)[begin : begin + self.page_size]}
        if begin + self.page_size < len(items):
            page["nextCursor"] = str(begin + self.page_size)
        if self.malformed:
            page[_member(method)] = 3
        return Raw(json.dumps(page).encode())

    async def forward(self, method: str, fill: Callable[[Any], Raw], *, timeout: float) -> Raw:
        """Answer a request as `Peer.forward` does."""
        return await self.request(method, json.loads(bytes(fill(None))), timeout=timeout)


def _member(method: str) -> str:
    return "resourceTemplates" if "templates" in method else method.partition("/")[0]
