"""Subscriptions in the stateless era: `subscriptions/listen` requests that are reopened."""

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
# Sent by a server that ends a subscription without a result.
CANCELLED = "notifications/cancelled"
WatchedChanges: TypeAlias = Literal["tools", "prompts", "resources"]


class ListenRequest:
    """The subscribed resources and lists, independent of a connection.

    The filter of a `subscriptions/listen` request cannot be changed, so a new request is opened
    before the previous one is closed. Each request has a limited number of resources, so that the
    cost of adding a subscription does not grow with their total number. A request that the server
    ends is reopened: soon if it was open for long, otherwise with growing delays. Changes before it
    is reopened are lost, so `missed` is called. A rejected request is not repeated.
    """

    def __init__(self, delay: float = 0.5, missed: Callable[[], None] = lambda: None) -> None:
        self.uris: dict[str, None] = {}  # in the order of subscription
        self.lists: set[WatchedChanges] = set()
        self._delay = delay
        self._missed = missed
        self._parts: list[_Part] = []
        self._changing = asyncio.Lock()
        self._changes = 0  # incremented with each change of the subscribed items
        # the value of `_changes` at the last request, and the connection of that request
        self._asked: tuple[int, Peer] | None = None

    @property
    def wanted(self) -> bool:
        """Return True if any resource or list is subscribed."""
        return bool(self.uris or self.lists)

    def add(self, uri: str) -> None:
        """Add a resource; `listen` sends the request."""
        self.uris[uri] = None
        self._changes += 1

    def remove(self, uri: str) -> bool:
        """Remove a resource. Return True if it was subscribed."""
        if uri not in self.uris:
            return False
        del self.uris[uri]
        self._changes += 1
        return True

    def set_uris(self, uris: Iterable[str]) -> None:
        """Set the subscribed resources; all others are removed."""
        self.uris = dict.fromkeys(uris)
        self._changes += 1

    def set_lists(self, lists: Iterable[WatchedChanges]) -> None:
        """Set the subscribed lists; all others are removed."""
        self.lists = set(lists)
        self._changes += 1

    async def listen(self, peer: Peer, timeout: float) -> None:
        """Request all subscribed items, replacing earlier requests.

        Concurrent callers share one request, sent by the caller that gets the lock first.

        Raises:
            FairleadError: The server rejected the request; earlier subscriptions stay active.
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
        """Process an acknowledgement or a cancellation of a subscription."""
        if method == CANCELLED:
            named = params.get("requestId")
        else:
            meta = params.get("_meta")
            named = meta.get(SUBSCRIPTION_KEY) if isinstance(meta, dict) else None
        if named is not None:
            for part in self._parts:
                part.heard(method, named)

    def _plan(self, peer: Peer) -> list[tuple["_Part", dict[str, Any]]]:
        """Return the requests that are new or have other items than before, with their items."""
        new = dict.fromkeys(self.uris)
        held: list[tuple[_Part, list[str]]] = []
        for part in self._parts:
            kept = [uri for uri in part.uris if uri in new]
            for uri in kept:
                del new[uri]
            held.append((part, kept))
        rest = iter(new)
        # Existing requests that have room are filled first.
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
        """Cancel all subscriptions."""
        self.uris.clear()
        self.lists.clear()
        self._changes += 1
        parts, self._parts = self._parts, []
        for part in parts:
            await part.close()


class _Part:
    """A request for some of the subscribed items, which is reopened if the server ends it."""

    def __init__(self, delay: float, missed: Callable[[], None], changing: asyncio.Lock) -> None:
        self.wanted: dict[str, Any] = {}  # the items of the request; empty if no request is open
        self._delay = delay
        self._missed = missed
        self._changing = changing
        self._ended = False  # True if the server ended the request, so that changes may be missed
        self._stream: _Stream | None = None
        self._opening: _Stream | None = None  # replaces `_stream` once the server acknowledges it
        self._follower: asyncio.Task[None] | None = None

    @property
    def uris(self) -> list[str]:
        uris: list[str] = self.wanted.get("resourceSubscriptions", [])
        return uris

    def tells(self, peer: Peer, wanted: dict[str, Any]) -> bool:
        """Return True if the request on this connection has exactly these items."""
        if not wanted:
            return not self.wanted
        return self.is_open(peer) and wanted == self.wanted

    def is_open(self, peer: Peer) -> bool:
        """Return True if the request is open on this connection."""
        stream = self._stream
        return stream is not None and not stream.task.done() and stream.peer is peer

    async def listen(self, peer: Peer, wanted: dict[str, Any], timeout: float) -> None:
        """Replace the request with a request for other items.

        Raises:
            FairleadError: The server rejected the request; the earlier request stays open.
        """
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
                        # Called immediately, so that later reads do not return a cached result.
                        self._missed()

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
        """Reopen the request whenever the server ends it or its connection breaks."""
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
            log.debug(
                "the server ended a subscription; reopening it in about %.2f s", backoff.delay
            )
            await asyncio.sleep(pause)
            began = now()
            try:
                async with self._changing:
                    stream = self._stream = await self._open(peer, stream.wanted, timeout)
                    self._ended = False
                began = now()
            except FairleadError as exc:
                if _is_final(exc, peer):
                    # After any other error, the loop tries to reopen the request again.
                    return


def _is_final(error: FairleadError, peer: Peer) -> bool:
    """Return True if a subscription that ended with this error is not reopened."""
    if not peer.connected:
        # The connection is closed. A new connection, if any, restores all subscriptions.
        return True
    refused = isinstance(error, HttpError) and error.status < 500 and error.status != 429
    # Over HTTP, each request has its own connection, which may break while others work.
    if isinstance(error, TransportError) and not refused:
        log.debug("a subscription was lost: %s", error)
        return False
    log.warning("a subscription has ended and is not reopened: %s", error)
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
            FairleadError: The server rejected the request.
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
            self.result()  # the request was rejected or ended immediately
        elif not self.acknowledged.is_set():
            log.warning("the server does not acknowledge the subscription; listening anyway")

    def end(self) -> None:
        """Mark the request as ended because the server cancelled it."""
        self._ended_by_peer = True
        self.task.cancel()

    def result(self) -> None:
        """Raise the error that the request ended with, if any."""
        if not (self._ended_by_peer and self.task.cancelled()):
            self.task.result()

    def _sent(self, request_id: RequestId) -> None:
        self.id = request_id


async def _stop(task: "asyncio.Future[Any] | None") -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            # Marks the exception as retrieved; otherwise asyncio would log it.
            task.exception()
