"""One long request that tells of changes (stateless era), opened again when the server ends it."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Literal, TypeAlias

from ...errors import FairleadError, HttpError, TransportError
from ...limits import STREAM_URIS
from ...peer import Peer
from ...protocol.caller import SUBSCRIPTION_KEY
from ...wire import RequestId
from .retry import restarts

__all__ = ["ACKNOWLEDGED", "CANCELLED", "ListenRequest", "WatchedChanges"]

log = logging.getLogger("fairlead.client")

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CANCELLED = "notifications/cancelled"  # the other way for a server to end a subscription
WatchedChanges: TypeAlias = Literal["tools", "prompts", "resources"]


class ListenRequest:
    """Resources and lists whose changes are wanted. Survives the connection it was asked on.

    A request names all that it is about, so it cannot be changed: a new one is opened before the
    old one ends. Each request is about a limited number of resources, so that one more costs the
    same however many there are. One that the server ends is opened again: soon if it had lasted,
    ever later if not. What changed in between nobody tells, so `missed` is called. A refusal is
    final.
    """

    def __init__(self, delay: float = 0.5, missed: Callable[[], None] = lambda: None) -> None:
        self.uris: dict[str, None] = {}  # in the order they were asked for
        self.lists: set[WatchedChanges] = set()
        self._delay = delay
        self._missed = missed
        self._parts: list[_Part] = []
        self._changing = asyncio.Lock()
        self._changes = 0  # of what is wanted
        self._asked: tuple[int, Peer] | None = None  # which of them was asked last, and where

    @property
    def wanted(self) -> bool:
        """Whether changes of anything are wanted."""
        return bool(self.uris or self.lists)

    def add(self, uri: str) -> None:
        """Want changes of a resource; `listen` asks for them."""
        self.uris[uri] = None
        self._changes += 1

    def remove(self, uri: str) -> bool:
        """The opposite of `add`. Returns whether they were wanted."""
        if uri not in self.uris:
            return False
        del self.uris[uri]
        self._changes += 1
        return True

    def set_uris(self, uris: Iterable[str]) -> None:
        """Want changes of these resources, and of no others."""
        self.uris = dict.fromkeys(uris)
        self._changes += 1

    def set_lists(self, lists: Iterable[WatchedChanges]) -> None:
        """Want changes of these lists, and of no others."""
        self.lists = set(lists)
        self._changes += 1

    async def listen(self, peer: Peer, timeout: float) -> None:
        """Ask for all that is wanted now, in place of what was asked before.

        Many may call this at once; the first one that gets its turn asks for all of them.

        Raises:
            FairleadError: the server refused; what was asked before is still told.
        """
        async with self._changing:
            now = self._changes, peer
            if self._asked == now and all(part.is_open(peer) for part in self._parts):
                return
            self._asked = None
            try:
                for part, wanted in self._plan(peer):
                    await part.listen(peer, wanted, timeout)
                self._asked = now
            finally:
                self._parts = [part for part in self._parts if part.wanted]

    def heard(self, method: str, params: dict[str, Any]) -> None:
        """The server acknowledged a subscription, or cancelled one."""
        if method == CANCELLED:
            named = params.get("requestId")
        else:
            meta = params.get("_meta")
            named = meta.get(SUBSCRIPTION_KEY) if isinstance(meta, dict) else None
        if named is not None:
            for part in self._parts:
                part.heard(method, named)

    def _plan(self, peer: Peer) -> list[tuple["_Part", dict[str, Any]]]:
        """Return the requests that have to be made anew, and for what."""
        new = dict.fromkeys(self.uris)
        held: list[tuple[_Part, list[str]]] = []
        for part in self._parts:
            kept = [uri for uri in part.uris if uri in new]
            for uri in kept:
                del new[uri]
            held.append((part, kept))
        rest = iter(new)
        for _, kept in held:
            kept += islice(rest, STREAM_URIS.value - len(kept))
        while more := list(islice(rest, STREAM_URIS.value)):
            held.append((self._another(), more))
        if self.lists and not held:
            held.append((self._another(), []))
        wanted = []
        for place, (part, uris) in enumerate(held):
            named: dict[str, Any] = {}
            if place == 0:
                named = {f"{name}ListChanged": True for name in sorted(self.lists)}
            if uris:
                named["resourceSubscriptions"] = uris
            if not part.tells(peer, named):
                wanted.append((part, named))
        return wanted

    def _another(self) -> "_Part":
        part = _Part(self._delay, self._missed, self._changing)
        self._parts.append(part)
        return part

    async def close(self) -> None:
        """Nothing is wanted any more."""
        self.uris.clear()
        self.lists.clear()
        self._changes += 1
        parts, self._parts = self._parts, []
        for part in parts:
            await part.close()


class _Part:
    """One request at a time, about a part of what is wanted."""

    def __init__(self, delay: float, missed: Callable[[], None], changing: asyncio.Lock) -> None:
        self.wanted: dict[str, Any] = {}  # what the request names; empty if there is none
        self._delay = delay
        self._missed = missed
        self._changing = changing
        self._ended = False  # by the server, so that changes go unheard
        self._stream: _Stream | None = None
        self._opening: _Stream | None = None  # in its place, once the server acknowledges it
        self._follower: asyncio.Task[None] | None = None

    @property
    def uris(self) -> list[str]:
        uris: list[str] = self.wanted.get("resourceSubscriptions", [])
        return uris

    def tells(self, peer: Peer, wanted: dict[str, Any]) -> bool:
        """Return whether the server tells just this already."""
        if not wanted:
            return not self.wanted
        return self.is_open(peer) and wanted == self.wanted

    def is_open(self, peer: Peer) -> bool:
        """Return whether the server has not ended the request."""
        stream = self._stream
        return stream is not None and not stream.task.done() and stream.peer is peer

    async def listen(self, peer: Peer, wanted: dict[str, Any], timeout: float) -> None:
        """Raises `FairleadError`: the server refused; what was asked before is still told."""
        stream = await self._open(peer, wanted, timeout) if wanted else None
        await self._replace(stream)
        self.wanted, self._ended = wanted, False
        if stream is not None:
            self._follower = asyncio.ensure_future(self._follow(stream, peer, timeout))

    def heard(self, method: str, named: object) -> None:
        for stream in (self._stream, self._opening):
            if stream is not None and stream.id == named:
                if method == CANCELLED:
                    stream.end()
                else:
                    stream.acknowledged.set()
                    if stream is self._opening and self._ended:
                        self._missed()  # at once: who reads now shall not get what was kept

    async def close(self) -> None:
        self.wanted = {}
        await self._replace(None)

    async def _open(self, peer: Peer, wanted: dict[str, Any], timeout: float) -> "_Stream":
        stream = self._opening = _Stream(peer, wanted)
        try:
            await stream.opened(timeout)
        except BaseException:
            await _stop(stream.task)
            raise
        finally:
            self._opening = None
        return stream

    async def _replace(self, stream: "_Stream | None") -> None:
        old, self._stream = self._stream, stream
        follower, self._follower = self._follower, None
        await _stop(follower)
        await _stop(old.task if old is not None else None)

    async def _follow(self, stream: "_Stream", peer: Peer, timeout: float) -> None:
        """Open it again whenever the server has ended it, or its connection broke."""
        now = asyncio.get_running_loop().time
        backoff, began = restarts(self._delay), now()
        while True:
            await asyncio.wait((stream.task,))
            try:
                stream.result()
            except FairleadError as exc:
                if _is_final(exc, peer):
                    return
            self._ended = True
            pause = backoff.after(now() - began)
            log.debug("the server ended a subscription; again in about %.2f s", backoff.delay)
            await asyncio.sleep(pause)
            began = now()
            try:
                async with self._changing:
                    stream = self._stream = await self._open(peer, stream.wanted, timeout)
                    self._ended = False
                began = now()
            except FairleadError as exc:
                if _is_final(exc, peer):
                    return  # else the old one is over still, and this goes on


def _is_final(error: FairleadError, peer: Peer) -> bool:
    """Whether a subscription that ended like this is not opened again."""
    if not peer.connected:
        return True  # a new connection, if there is one, is asked anew
    refused = isinstance(error, HttpError) and error.status < 500 and error.status != 429
    if isinstance(error, TransportError) and not refused:  # over HTTP each has its own connection
        log.debug("a subscription was lost: %s", error)
        return False
    log.warning("a subscription is over: %s", error)
    return True


class _Stream:
    """One `subscriptions/listen`."""

    def __init__(self, peer: Peer, wanted: dict[str, Any]) -> None:
        self.id: RequestId | None = None
        self.peer = peer
        self.wanted = wanted
        self.acknowledged = asyncio.Event()
        self._ended_by_peer = False
        self.task = asyncio.ensure_future(
            peer.request(
                "subscriptions/listen",
                {"notifications": wanted},
                timeout=0,
                on_sent=self._sent,
            )
        )

    async def opened(self, timeout: float) -> None:
        """Wait for the acknowledgement.

        Raises:
            FairleadError: the server refused.
        """
        acknowledged = asyncio.ensure_future(self.acknowledged.wait())
        try:
            await asyncio.wait(
                (self.task, acknowledged),
                timeout=timeout or None,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            acknowledged.cancel()
        if self.task.done():
            self.result()  # refused, or over at once
        elif not self.acknowledged.is_set():
            log.warning("the server does not acknowledge the subscription; listening anyway")

    def end(self) -> None:
        """The server cancelled it, which is an end like any other."""
        self._ended_by_peer = True
        self.task.cancel()

    def result(self) -> None:
        """Raises what it ended with; an orderly end is nothing."""
        if not (self._ended_by_peer and self.task.cancelled()):
            self.task.result()

    def _sent(self, request_id: RequestId) -> None:
        self.id = request_id


async def _stop(task: "asyncio.Future[Any] | None") -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # looked at, so that nobody complains
