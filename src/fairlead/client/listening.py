"""What a client wants to be told of, asked for in the way of the server's era."""

import asyncio
import logging
from typing import Any, Literal, TypeAlias

from ..errors import FairleadError
from ..peer import Peer
from ..protocol.caller import SUBSCRIPTION_KEY
from ..wire import RequestId

__all__ = ["ACKNOWLEDGED", "Changes", "Listening"]

log = logging.getLogger("fairlead.client")

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
Changes: TypeAlias = Literal["tools", "prompts", "resources"]


class Listening:
    """Resources and lists whose changes are wanted. Survives the connection it was asked on.

    A handshake server is asked resource by resource, and tells of lists by itself. A stateless one
    gets one long request; to change what it tells, a new one is opened before the old one ends.
    """

    def __init__(self) -> None:
        self.uris: dict[str, None] = {}  # in the order they were asked for
        self.lists: set[Changes] = set()
        self._stream: asyncio.Future[Any] | None = None
        self._stream_id: RequestId | None = None
        self._acknowledged: asyncio.Event | None = None
        self._changing = asyncio.Lock()

    async def listen(self, peer: Peer, timeout: float) -> None:
        """Stateless era: ask for all that is wanted now, in place of what was asked before.

        Raises:
            FairleadError: the server refused, or did not acknowledge it in time.
        """
        async with self._changing:
            old, self._stream = self._stream, None
            try:
                if self.uris or self.lists:
                    await self._open(peer, timeout)
            finally:
                await _end(old)

    def heard(self, params: dict[str, Any]) -> None:
        """The server acknowledged a subscription."""
        meta = params.get("_meta")
        named = meta.get(SUBSCRIPTION_KEY) if isinstance(meta, dict) else None
        if self._acknowledged is not None and named == self._stream_id:
            self._acknowledged.set()

    async def close(self) -> None:
        stream, self._stream = self._stream, None
        await _end(stream)

    async def _open(self, peer: Peer, timeout: float) -> None:
        wanted: dict[str, Any] = {f"{name}ListChanged": True for name in sorted(self.lists)}
        if self.uris:
            wanted["resourceSubscriptions"] = list(self.uris)
        self._acknowledged = asyncio.Event()
        stream = asyncio.ensure_future(
            peer.request(
                "subscriptions/listen",
                {"notifications": wanted},
                timeout=0,
                on_sent=self._sent,
            )
        )
        acknowledged = asyncio.ensure_future(self._acknowledged.wait())
        try:
            await asyncio.wait(
                (stream, acknowledged),
                timeout=timeout or None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if stream.done():
                stream.result()  # refused, or over at once
            elif not acknowledged.done():
                log.warning("the server does not acknowledge the subscription; listening anyway")
        except BaseException:
            stream.cancel()
            raise
        finally:
            acknowledged.cancel()
        stream.add_done_callback(_ended)
        self._stream = stream

    def _sent(self, request_id: RequestId) -> None:
        self._stream_id = request_id


def _ended(stream: "asyncio.Future[Any]") -> None:
    if not stream.cancelled() and isinstance(exc := stream.exception(), FairleadError):
        log.debug("a subscription ended: %s", exc)


async def _end(stream: "asyncio.Future[Any] | None") -> None:
    if stream is not None:
        stream.cancel()
        await asyncio.wait((stream,))
        if not stream.cancelled():
            stream.exception()  # looked at, so that nobody complains
