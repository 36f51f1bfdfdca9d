"""Asynchronous iterator over changes that a server reports."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Literal, Self

from msgspec import Struct

if TYPE_CHECKING:
    from .listen_request import WatchedChanges

__all__ = ["Change", "ChangeStream"]

_KINDS = ("tools", "prompts", "resources")


class Change(Struct, frozen=True):
    """A change that the server reported: to a list, or to the resource with this URI."""

    kind: Literal["tools", "prompts", "resources", "resource"]
    uri: str | None = None


class ChangeStream:
    """A stream of changes to lists and resources: open it with `async with`, then iterate with
    `async for`.

    Several changes to an item are returned as one if the first was not returned yet. After the
    connection was interrupted, all watched items count as changed. The iteration ends when the
    client is closed.
    """

    def __init__(
        self,
        lists: "Iterable[WatchedChanges]",
        uris: Iterable[str],
        begin: Callable[["ChangeStream"], Awaitable[None]],
        finish: Callable[["ChangeStream"], Awaitable[None]],
    ) -> None:
        """Create a stream. `begin` registers it with the client, `finish` unregisters it."""
        self.lists = set(lists)
        self.uris = dict.fromkeys(uris)
        self.mine: list[str] = []  # resources that this stream subscribed to
        self._begin = begin
        self._finish = finish
        self._news: dict[Change, None] = {}
        self._something = asyncio.Event()
        self._over = False

    async def __aenter__(self) -> Self:
        await self._begin(self)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.end()
        await self._finish(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        while not self._news:
            if self._over:
                raise StopAsyncIteration
            self._something.clear()
            await self._something.wait()
        change = next(iter(self._news))
        del self._news[change]
        return change

    def heard(self, method: str, uri: str | None) -> None:
        """Process a change notification."""
        kind = method.split("/")[1]
        if method == "notifications/resources/updated":
            # A server may name part of a subscribed resource.
            if uri is not None and any(uri.startswith(wanted) for wanted in self.uris):
                self._put(Change("resource", uri))
        elif kind in self.lists:
            self._put(Change(kind))

    def missed(self) -> None:
        """Report all watched items as changed, because notifications may have been lost."""
        for kind in _KINDS:
            if kind in self.lists:
                self._put(Change(kind))
        for uri in self.uris:
            self._put(Change("resource", uri))

    def end(self) -> None:
        self._over = True
        self._something.set()

    def _put(self, change: Change) -> None:
        self._news[change] = None
        self._something.set()
