"""Changes at a server as an asynchronous iterator: what has changed, one by one, as it happens."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Literal, Self

from msgspec import Struct

if TYPE_CHECKING:
    from .listen_request import WatchedChanges

__all__ = ["Change", "ChangeStream"]

_KINDS = ("tools", "prompts", "resources")


class Change(Struct, frozen=True):
    """Something at the server is not what it was: a list, or the resource with this URI."""

    kind: Literal["tools", "prompts", "resources", "resource"]
    uri: str | None = None


class ChangeStream:
    """Changes of some lists and resources: `async with` it, then `async for` each change.

    What changes again before it was looked at is one change. After a time without a connection
    everything watched counts as changed. It ends with the client.
    """

    def __init__(
        self,
        lists: "Iterable[WatchedChanges]",
        uris: Iterable[str],
        begin: Callable[["ChangeStream"], Awaitable[None]],
        finish: Callable[["ChangeStream"], Awaitable[None]],
    ) -> None:
        """`begin` and `finish` tell the client who is there."""
        self.lists = set(lists)
        self.uris = dict.fromkeys(uris)
        self.mine: list[str] = []  # resources that are subscribed to because of this watch
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
        """The server told of a change."""
        kind = method.split("/")[1]
        if method == "notifications/resources/updated":
            # A server may name a part of what was subscribed to.
            if uri is not None and any(uri.startswith(wanted) for wanted in self.uris):
                self._put(Change("resource", uri))
        elif kind in self.lists:
            self._put(Change(kind))

    def missed(self) -> None:
        """Nobody told for a while."""
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
