"""Client end of HTTP+SSE (revision 2024-11-05), which receives events and sends POSTs.

The stream is the session. Its first event names the URL for POSTs; the session ends with the
stream.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from msgspec import Raw

from ....errors import (
    ChannelClosed,
    ConnectFailed,
    FairleadError,
    RemoteProtocolError,
    RequestTimeout,
)
from ....protocol.envelope import TransportContext
from ....wire import (
    MAX_MESSAGE,
    Decoder,
    Message,
    Notification,
    Request,
    RequestId,
    encode,
    encode_success,
)
from ....wire.error_codes import INVALID_REQUEST
from ....wire.sse import Event, EventParser, EventTooLong
from ...channel import Deliver, RequestLost, SharedStream
from ...drain_waiter import DrainWaiter
from ...login_waits import LoginTimeout, LoginWaits
from .http1.http_client import HttpClient, HttpClientOptions, HttpResponse
from .http1.url import EndpointUrl
from .listen_stream import read_events
from .request_headers import RequestHeaders

__all__ = ["LegacySseChannel", "open_legacy_sse"]

HIGH_WATER = 1 << 20  # bytes queued for sending above which senders wait
LINGER = 1.0  # seconds for queued messages to be sent on close
POST_TIMEOUT = 30.0  # seconds for the server to accept a message

log = logging.getLogger("fairlead.transport")


async def open_legacy_sse(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    timeout: float = 10.0,
    limit: int = MAX_MESSAGE,
    **tls: Unpack[HttpClientOptions],
) -> "LegacySseChannel":
    """Open the stream and wait up to `timeout` seconds for the endpoint event.

    Raises:
        HttpError: The server refused the stream.
        ConnectFailed: The server cannot be reached, or the stream does not begin with an endpoint
            of the same origin.
        ConfigError: The URL cannot be used.
    """
    address = EndpointUrl.parse(url)
    door = HttpClient(address, **tls)
    heading = RequestHeaders(headers, address.authorization)
    reply: HttpResponse | None = None
    try:
        async with LoginTimeout(timeout, door.logins):
            reply = await door.open("GET", heading.listening())
            if not reply.ok:
                raise (await reply.refusal())[0]
            if not reply.streams:
                raise ConnectFailed(
                    f"Invalid content type {reply.content_type!r}: expected text/event-stream"
                )
            channel = LegacySseChannel(door, heading, reply, limit=limit)
            await channel.find_endpoint()
            return channel
    except BaseException as exc:
        if reply is not None:
            reply.close()
        await door.close()
        # RequestTimeout is a TimeoutError too, and already has a message of its own.
        if isinstance(exc, TimeoutError) and not isinstance(exc, FairleadError):
            raise ConnectFailed(f"No endpoint event within {timeout:g} seconds") from exc
        raise


class LegacySseChannel(SharedStream):
    """Channel over an open event stream and its endpoint for POSTs; see `open_legacy_sse`."""

    def __init__(
        self, door: HttpClient, heading: RequestHeaders, reply: HttpResponse, *, limit: int
    ) -> None:
        self.context = TransportContext(transport_type="sse", peer_address=door.address.url)
        self.on_error: Callable[[Exception], None] | None = None
        self._door = door
        self._request_headers = heading
        self._reply = reply
        self._limit = limit
        self._parser = EventParser(limit)
        self._decode = Decoder().decode
        # events that followed the endpoint in the same chunk
        self._events: list[Event | EventTooLong] = []
        self._endpoint = ""
        self._deliver: Deliver | None = None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: asyncio.Task[None] | None = None
        self._queued = 0
        self._drained = DrainWaiter()
        self._closing: asyncio.Task[None] | None = None

    @property
    def logins(self) -> LoginWaits | None:  # type: ignore[override]
        return self._door.logins

    async def find_endpoint(self) -> None:
        """Read the stream up to the event that names the URL for POSTs.

        Raises:
            ConnectFailed: The stream begins with another event or ends, or the URL has another
                origin.
        """
        while True:
            try:
                chunk = await self._reply.chunk()
            except ChannelClosed as exc:
                raise ConnectFailed(f"The stream broke before the endpoint: {exc}") from exc
            if not chunk:
                raise ConnectFailed("The stream ended before the endpoint event")
            events = self._parser.feed(chunk)
            for index, event in enumerate(events):
                if isinstance(event, Event) and event.event == "endpoint":
                    self._events = events[index + 1 :]
                    # POSTs carry the client's credentials, so a stream must not redirect them.
                    named = event.data.decode("utf-8", "replace")
                    endpoint = EndpointUrl(self._reply.url).resolve(named)
                    if endpoint is None:
                        why = "The endpoint event names a URL of another origin"
                        raise ConnectFailed(why)
                    self._endpoint = endpoint
                    return
                if isinstance(event, EventTooLong) or event.data:
                    raise ConnectFailed("The first event of the stream is not the endpoint")

    # Methods of Channel

    async def run(self, deliver: Deliver) -> None:
        self._deliver = deliver
        try:
            for event in self._events:
                self._heard(event)
            await read_events(self._reply, self._parser, self._heard)
        except ChannelClosed as exc:
            if self._closing is None:
                raise ChannelClosed(f"the event stream broke: {exc.reason}") from exc
        if self._closing is None:
            raise ChannelClosed("the server ended the event stream")

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        request_id = message.id if isinstance(message, Request) else None
        self._queue(encode(message), request_id, ordered=isinstance(message, Notification))

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        self._queue(encode_success(request_id, result), None, ordered=False)

    @property
    def congested(self) -> bool:
        return self._queued > HIGH_WATER

    async def drain(self) -> None:
        while self.congested:
            if self._closing is not None:
                raise ChannelClosed(delivered=False)
            await self._drained.wait()

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    # Sending and receiving

    def _queue(self, body: bytes, request_id: RequestId | None, *, ordered: bool) -> None:
        if self._closing is not None:
            raise ChannelClosed(delivered=False)
        self._queued += len(body)
        task = self._loop.create_task(self._post(body, request_id, self._last))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._left(task, len(body)))
        if ordered:
            # Messages wait for an earlier notification, because separate POSTs could overtake it.
            self._last = task

    def _left(self, task: "asyncio.Task[None]", size: int) -> None:
        self._tasks.discard(task)
        if self._last is task:
            self._last = None
        self._queued -= size
        if not self.congested:
            self._drained.wake()

    async def _post(
        self, body: bytes, request_id: RequestId | None, first: "asyncio.Task[None] | None"
    ) -> None:
        try:
            if first is not None:
                await asyncio.wait((first,))
            async with LoginTimeout(POST_TIMEOUT, self._door.logins):
                reply = await self._door.open(
                    "POST", self._request_headers.post, body, self._endpoint
                )
                if not reply.ok:
                    error, _ = await reply.refusal()
                    raise error
                await reply.read(self._limit)
        except TimeoutError:
            self._failed(request_id, RequestTimeout(POST_TIMEOUT))
        except FairleadError as exc:
            self._failed(request_id, exc)

    def _failed(self, request_id: RequestId | None, error: FairleadError) -> None:
        if request_id is not None and self._deliver is not None:
            self._deliver(RequestLost(request_id, error))
        elif self.on_error is not None:
            self.on_error(error)

    def _heard(self, event: Event | EventTooLong) -> None:
        assert self._deliver is not None
        item: Any
        try:
            if isinstance(event, EventTooLong):
                why = f"An event of {event.size} bytes is over the limit of {self._limit}"
                raise RemoteProtocolError(why, code=INVALID_REQUEST)
            if event.event != "message" or not event.data:
                return
            item = self._decode(event.data)
        # Delivered rather than raised: one unreadable event must not end the session.
        except RemoteProtocolError as exc:
            item = exc
        self._deliver(item)

    async def _close(self) -> None:
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=LINGER)
            for task in (left := set(self._tasks)):
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=LINGER)
        finally:
            self._reply.close()
            await self._door.close()
