"""One long request that tells of changes (stateless era), opened again when the server ends it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from ..errors import FairleadError, HttpError, TransportError
from ..peer import Peer
from ..protocol.caller import SUBSCRIPTION_KEY
from ..wire import RequestId
from .retry import Patience

__all__ = ["ACKNOWLEDGED", "CANCELLED", "Changes", "Listening"]

log = logging.getLogger("fairlead.client")

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CANCELLED = "notifications/cancelled"  # the other way for a server to end a subscription
Changes: TypeAlias = Literal["tools", "prompts", "resources"]


class Listening:
    """Resources and lists whose changes are wanted. Survives the connection it was asked on.

    To change what a server tells, a new request is opened before the old one ends. One that the
    server ends is opened again: soon if it had lasted, ever later if not. What changed in between
    nobody tells, so `missed` is called. A refusal is final.
    """

    def __init__(self, delay: float = 0.5, missed: Callable[[], None] = lambda: None) -> None:
        self.uris: dict[str, None] = {}  # in the order they were asked for
        self.lists: set[Changes] = set()
        self._delay = delay
        self._missed = missed
        self._ended = False  # by the server, so that changes go unheard
        self._stream: _Stream | None = None
        self._opening: _Stream | None = None  # in its place, once the server acknowledges it
        self._follower: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()

    @property
    def wanted(self) -> dict[str, Any]:
        """The filter that names everything; empty if nothing is wanted."""
        named: dict[str, Any] = {f"{name}ListChanged": True for name in sorted(self.lists)}
        if self.uris:
            named["resourceSubscriptions"] = list(self.uris)
        return named

    async def listen(self, peer: Peer, timeout: float) -> None:
        """Ask for all that is wanted now, in place of what was asked before.

        Raises:
            FairleadError: the server refused; what was asked before is still told.
        """
        async with self._changing:
            stream = await self._open(peer, self.wanted, timeout) if self.wanted else None
            await self._replace(stream)
            self._ended = False
            if stream is not None:
                self._follower = asyncio.ensure_future(self._follow(stream, peer, timeout))

    def heard(self, method: str, params: dict[str, Any]) -> None:
        """The server acknowledged a subscription, or cancelled one."""
        if method == CANCELLED:
            named = params.get("requestId")
        else:
            meta = params.get("_meta")
            named = meta.get(SUBSCRIPTION_KEY) if isinstance(meta, dict) else None
        for stream in (self._stream, self._opening):
            if stream is not None and named is not None and stream.id == named:
                if method == CANCELLED:
                    stream.end()
                else:
                    stream.acknowledged.set()
                    if stream is self._opening and self._ended:
                        self._missed()  # at once: who reads now shall not get what was kept

    async def close(self) -> None:
        """Nothing is wanted any more."""
        self.uris.clear()
        self.lists.clear()
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
        patience, began = Patience(self._delay), now()
        while True:
            await asyncio.wait((stream.task,))
            try:
                stream.result()
            except FairleadError as exc:
                if _is_final(exc, peer):
                    return
            self._ended = True
            pause = patience.after(now() - began)
            log.debug("the server ended a subscription; again in about %.2f s", patience.delay)
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
