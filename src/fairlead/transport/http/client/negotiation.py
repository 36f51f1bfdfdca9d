"""Detection of the HTTP transport that a server supports, while the connection is opened."""

import asyncio
import logging
from typing import Any, Literal

from msgspec import Raw

from ....errors import ChannelClosed, ConnectFailed, FairleadError, HttpError
from ....protocol.conversation.era_probe import judge_lost_probe, means_http_sse
from ....wire import Message, Notification, Request, RequestId
from ...channel import Channel, Deliver, Incoming, RequestLost
from .http_channel import HttpChannel
from .legacy_sse import LegacySseChannel, open_legacy_sse

__all__ = ["NegotiatingChannel", "open_http"]

log = logging.getLogger("fairlead.transport")

_STREAMABLE_ONLY = ("listen", "pool_size")


async def open_http(url: str, *, mode: Literal["http", "sse"] = "http", **options: Any) -> Channel:
    """Return a channel to a server over HTTP. Options are those of `HttpChannel`.

    With "http" nothing is sent before the first message; if the server refuses `initialize` as a
    server of revision 2024-11-05 does, HTTP+SSE is used. With "sse" HTTP+SSE is tried first, and
    Streamable HTTP is used if the server does not support it.

    Raises:
        ConnectFailed: In mode "sse", the server cannot be reached.
        HttpError: In mode "sse", the server refused the stream for another reason.
        ConfigError: The URL or `ca_file` cannot be used.
    """
    if mode == "http":
        return NegotiatingChannel(url, **options)
    try:
        return await open_legacy_sse(url, **_for_legacy(options))
    except HttpError as exc:
        if judge_lost_probe(exc) is None:
            raise
        log.debug("the server does not support HTTP+SSE: %s", exc)
    except ConnectFailed as exc:
        if exc.__cause__ is not None:
            # The error comes from the network, so Streamable HTTP would fail too.
            raise
        log.debug("the server does not support HTTP+SSE: %s", exc)
    return HttpChannel(url, **options)


class NegotiatingChannel(HttpChannel):
    """Streamable HTTP channel that falls back to HTTP+SSE if `initialize` is refused.

    After the fallback `initialize` is sent again on the new stream, so that its caller does not see
    the refusal.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._url = url
        self._options = options
        self._told: Deliver | None = None
        self._initialize: Request | None = None  # the `initialize` request, until it has a response
        self._changing: asyncio.Task[None] | None = None
        self._legacy: LegacySseChannel | None = None

    @property
    def correlates_calls(self) -> bool:  # type: ignore[override]
        return self._legacy is None

    async def run(self, deliver: Deliver) -> None:
        self._told = deliver
        await super().run(self._heard)
        if self._legacy is not None:
            await self._legacy.run(deliver)

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        if self._legacy is not None:
            self._legacy.send(message, reply_to=reply_to)
            return
        if isinstance(message, Request) and message.method == "initialize":
            self._initialize = message
        super().send(message, reply_to=reply_to)

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        if self._legacy is not None:
            self._legacy.send_success(request_id, result)
        else:
            super().send_success(request_id, result)

    @property
    def congested(self) -> bool:
        return self._slots.congested if self._legacy is None else self._legacy.congested

    async def drain(self) -> None:
        await (super().drain() if self._legacy is None else self._legacy.drain())

    async def tell(self, notification: Notification, *, timeout: float | None = None) -> None:
        if self._legacy is not None:
            self._legacy.send(notification)
        else:
            await super().tell(notification, timeout=timeout)

    async def close(self) -> None:
        # Cancelled first, because the task may set `_legacy`, which has to be closed too.
        if self._changing is not None and not self._changing.done():
            self._changing.cancel()
            await asyncio.wait((self._changing,))
        if self._legacy is not None:
            await self._legacy.close()
        await super().close()

    def _heard(self, item: Incoming) -> None:
        assert self._told is not None
        first = self._initialize
        if first is not None and isinstance(item, RequestLost) and item.request_id == first.id:
            self._initialize = None
            if means_http_sse(item.error) and self._changing is None:
                self._changing = asyncio.get_running_loop().create_task(self._change(first, item))
                return
        self._told(item)

    async def _change(self, first: Request, refused: RequestLost) -> None:
        assert self._told is not None
        try:
            legacy = await open_legacy_sse(self._url, **_for_legacy(self._options))
        except FairleadError as exc:
            log.debug("the server does not support HTTP+SSE either: %s", exc)
            self._told(refused)
            return
        log.debug("the server supports HTTP+SSE")
        legacy.on_error = self.on_error
        self.context = legacy.context
        self._legacy = legacy
        try:
            legacy.send(first)
            # Closing ends `HttpChannel.run`; `run` of this class continues with the legacy channel.
            await super().close()
        except ChannelClosed as exc:
            self._told(RequestLost(first.id, exc))


def _for_legacy(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _STREAMABLE_ONLY}
