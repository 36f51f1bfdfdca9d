"""Responses to POSTs: a body, or an event stream that is resumed when it breaks."""

import asyncio
from collections.abc import Callable, Mapping

from msgspec import UnsetType

from ....errors import ChannelClosed, NoAnswer, RemoteProtocolError, TransportError
from ....protocol.caller import ParamsHead
from ....wire import Batch, Decoder, Failure, Message, Request, RequestId, encode
from ....wire.sse import Event, EventParser, EventTooLong
from .fragments import FragmentAssembler
from .http1.http_client import HttpClient, HttpResponse
from .listen_stream import backoff, read_events
from .response_messages import with_request_id

__all__ = ["PendingPost", "ResponseReader"]

DRAIN = 0.5  # seconds for which a stream may continue after the response
RESUMES = 5  # consecutive failures after which a stream is no longer resumed


class PendingPost:
    """State of one request from its POST to its response."""

    def __init__(self, message: Request, head: ParamsHead) -> None:
        self.message = message
        self.head = head
        # protocol version in the params of the request (stateless era)
        self.version: str | None = None
        if not isinstance(head.meta, UnsetType):
            version = head.meta.protocol_version
            self.version = None if isinstance(version, UnsetType) else version
        self.body = encode(message)
        self.extra: Mapping[str, str] | None = None
        self.fragments: FragmentAssembler | None = None
        self.questions: list[RequestId] = []  # ids of requests from the server on this stream
        self.answered = False
        self.sent = False
        self.streaming = False  # the response is an event stream
        self.counted = False
        self.task: asyncio.Task[None] | None = None

    @property
    def stateless(self) -> bool:
        return self.version is not None


class ResponseReader:
    """Reader of response bodies and event streams."""

    def __init__(
        self,
        door: HttpClient,
        headers: Callable[[str | None], dict[str, str]],
        *,
        hear: Callable[[Message | Batch], None],
        hear_event: Callable[[Event | EventTooLong, PendingPost | None], None],
        release: Callable[[PendingPost], None],
        listening: Callable[[], bool],
        limit: int,
    ) -> None:
        """`release` is called when a request no longer counts towards the limit of calls."""
        self.hear_event = hear_event
        self.release = release
        self._door = door
        self._headers = headers
        self._hear = hear
        self._listening = listening
        self.limit = limit
        self._decode = Decoder().decode

    async def take(self, posted: PendingPost, reply: HttpResponse) -> None:
        """Read a successful HTTP response until the request is answered.

        Raises:
            NoAnswer: The HTTP response ended without the JSON-RPC response and cannot be resumed.
            RemoteProtocolError: The HTTP response cannot be read.
            TransportError: The body is too long, or the connection broke.
        """
        if reply.streams:
            posted.streaming = True
            await self._stream(posted, reply)
            return
        body = await reply.read(self.limit)
        if not body.strip():
            if self._listening():
                return  # the response may arrive on the listening stream
            raise NoAnswer(posted.message.id)
        try:
            message = self._decode(body)
        except RemoteProtocolError as exc:
            exc.excerpt, exc.size, exc.frame = repr(body[:200]), len(body), body
            exc.content_type = reply.content_type
            if reply.content_type not in ("application/json", ""):
                exc.args = (f"{exc.args[0]} (content type {reply.content_type})",)
            raise
        # An error without an id can only refer to the request in this POST.
        if isinstance(message, Failure) and message.id is None:
            message = with_request_id(message, posted.message.id)
        self._hear(message)
        if not posted.answered:
            raise NoAnswer(posted.message.id)

    async def _stream(self, posted: PendingPost, reply: HttpResponse) -> None:
        """Read events until the response; resume a broken stream where possible."""
        reading = _ResponseStream(self, posted)
        broken: ChannelClosed | None = None
        try:
            await reading.follow(reply)
        except ChannelClosed as exc:
            broken = exc
        if posted.answered:
            return
        # Free the slot for other calls, because a resumed stream may last for minutes.
        self.release(posted)
        if posted.stateless or not reading.last_id:
            raise _no_answer(posted) from broken
        await self._resume(posted, reading)

    async def _resume(self, posted: PendingPost, before: "_ResponseStream") -> None:
        """Resume the stream after its last event; the POST itself is never repeated."""
        failures = 0
        while not posted.answered:
            await asyncio.sleep(backoff(failures, before.retry))
            reading = _ResponseStream(self, posted, before)
            broken = await self._take_up(posted, reading)
            # Progress resets the count, so that a long call survives many short connections.
            if reading.events:
                failures = 0 if broken is None else 1
            elif broken is not None or reading.retry is None:
                failures += 1
            if failures > RESUMES:
                raise _no_answer(posted) from broken
            before = reading

    async def _take_up(
        self, posted: PendingPost, reading: "_ResponseStream"
    ) -> TransportError | None:
        """Follow the resumed stream; return the error if another attempt may succeed."""
        if posted.answered:
            return None  # the response arrived on another stream
        try:
            reply = await self._door.open("GET", self._headers(reading.last_id))
            if reply.ok and reply.streams:
                await reading.follow(reply)
                return None
            error, _ = await reply.refusal()
        except TransportError as exc:
            return exc
        # Server errors may be temporary; any other status means that the stream is gone.
        if reply.status >= 500:
            return error
        raise _no_answer(posted) from error


class _ResponseStream:
    """One event stream of a request; it is closed shortly after the response."""

    def __init__(
        self, answers: ResponseReader, posted: PendingPost, before: "_ResponseStream | None" = None
    ) -> None:
        self.events = 0
        self.retry: int | None = before.retry if before is not None else None  # milliseconds
        self._parser = EventParser(answers.limit)
        self._parser.last_id = before.last_id if before is not None else None
        self._answers = answers
        self._posted = posted
        self._reply: HttpResponse | None = None
        self._limit: asyncio.TimerHandle | None = None

    @property
    def last_id(self) -> str | None:
        return self._parser.last_id

    async def follow(self, reply: HttpResponse) -> None:
        """Read the stream to its end.

        Raises:
            ChannelClosed: The connection broke.
            RemoteProtocolError: An event cannot be read.
        """
        self._reply = reply
        try:
            await read_events(reply, self._parser, self._take)
        finally:
            if self._limit is not None:
                self._limit.cancel()

    def _take(self, event: Event | EventTooLong) -> None:
        self.events += 1
        if isinstance(event, Event) and event.retry is not None:
            self.retry = event.retry
        posted = self._posted
        self._answers.hear_event(event, posted)
        if posted.answered and self._limit is None and self._reply is not None:
            self._answers.release(posted)
            # A server should end the stream after the response.
            # Reading a little longer keeps the connection reusable and receives late notifications.
            self._limit = asyncio.get_running_loop().call_later(DRAIN, self._reply.close)


def _no_answer(posted: PendingPost) -> NoAnswer:
    return NoAnswer(posted.message.id, posted.fragments.parts if posted.fragments else ())
