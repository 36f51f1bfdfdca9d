"""POSTs to a server, repeated with a new session or new credentials if it requires them."""

import asyncio

from ....errors import RequestTimeout
from ....wire.sse import EventParser
from .http1.http_client import HttpClient, HttpResponse
from .listen_stream import read_events
from .message_receiver import MessageReceiver
from .post_response_stream import PendingPost, ResponseReader
from .request_headers import RequestHeaders
from .response_messages import failure_in, is_method_not_found, session_id_of, with_request_id
from .session_renewal import SessionRenewal
from .session_teardown import SessionTeardown

__all__ = ["PostSender"]


class PostSender:
    """Sender of one message in each POST."""

    def __init__(
        self,
        door: HttpClient,
        headers: RequestHeaders,
        receiver: MessageReceiver,
        *,
        responses: ResponseReader,
        renewal: SessionRenewal,
        teardown: SessionTeardown,
        limit: int,
    ) -> None:
        self.stateless_version: str | None = None  # of the last request that declared one
        self._door = door
        self._headers = headers
        self._receiver = receiver
        self._responses = responses
        self._renewal = renewal
        self._teardown = teardown
        self._limit = limit

    async def post(self, body: bytes) -> None:
        """POST a message that has no response.

        Raises:
            FairleadError: The server did not accept the message.
        """
        for again in (True, False):
            generation = self._headers.generation
            headers = self._headers.told(self.stateless_version)
            reply = await self._door.open("POST", headers, body)
            if reply.ok:
                # A server may respond with a stream nevertheless, and send messages on it.
                if reply.streams:
                    parser = EventParser(self._limit)
                    await read_events(reply, parser, self._receiver.receive_event)
                else:
                    await reply.read(self._limit)
                return
            error, _ = await reply.refusal()
            if not again or not await self._headers.refreshed(error, generation):
                raise error

    async def post_within(self, body: bytes, seconds: float, method: str = "") -> None:
        """Call `post` with a time limit; 0 means no limit.

        Raises:
            RequestTimeout: The server did not accept the message in time.
        """
        try:
            async with asyncio.timeout(seconds or None):
                await self.post(body)
        except TimeoutError as exc:
            error = RequestTimeout(seconds, method)
            error.args = (f"Notify timeout after {seconds * 1000:.0f}ms",)
            raise error from exc

    async def exchange(self, posted: PendingPost) -> None:
        """POST a request and read its response; repeat it with a new session or credentials."""
        heading, message = self._headers, posted.message
        # Each remedy is tried once: a server that keeps refusing would cause an endless loop.
        may_renew = may_authorize = True
        while True:
            session = None if posted.stateless else heading.session_id
            generation = heading.generation
            headers = heading.asked(message, posted.head, posted.extra)
            posted.sent = True
            opens = message.method == "initialize" and not posted.stateless
            reply: HttpResponse
            if opens:
                # Opened by the teardown, which ends the session even if this task is cancelled.
                reply = await self._teardown.open(headers, posted.body)
            else:
                reply = await self._door.open("POST", headers, posted.body)
            if reply.ok:
                if opens:
                    heading.opened(session_id_of(reply), None)
                await self._responses.take(posted, reply)
                return
            error, body = await reply.refusal()
            failure = failure_in(body)
            # 404 means an unknown session, unless the JSON-RPC error says "method not found".
            if session and reply.status == 404 and not is_method_not_found(failure, message):
                if not may_renew:
                    raise error
                may_renew = False
                await self._renewal.renewed(session, error)
                continue
            if may_authorize and await heading.refreshed(error, generation):
                may_authorize = False
                continue
            # A client that must authorize first needs the headers of the HTTP response.
            if failure is None or error.status == 401 or error.www_authenticate:
                raise error
            self._receiver.receive(with_request_id(failure, message.id))
            return
