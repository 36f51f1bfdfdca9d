"""Delivery of a server's messages from all HTTP streams, in the order of arrival."""

import logging
from collections.abc import Callable

from ....errors import FairleadError, RemoteProtocolError
from ....wire import Batch, Decoder, Failure, Message, Request, RequestId, Success
from ....wire.error_codes import INVALID_REQUEST
from ....wire.sse import Event, EventTooLong
from ...channel import BufferedDelivery, RequestLost
from .fragments import EVENTS, FragmentAssembler, OnFragment
from .post_response_stream import PendingPost

__all__ = ["MessageReceiver"]

log = logging.getLogger("fairlead.transport")


class MessageReceiver(BufferedDelivery):
    """Receiver that matches responses with pending requests and delivers every message."""

    def __init__(
        self,
        *,
        succeeded: Callable[[PendingPost, Success], None],
        on_fragment: OnFragment,
        limit: int,
    ) -> None:
        """`succeeded` is called with each request that has a result, before the result is
        delivered.
        """
        super().__init__()
        self.pending: dict[RequestId, PendingPost] = {}
        # Id of the request whose stream carried the message that is being delivered.
        self.related_request_id: RequestId | None = None
        self._succeeded = succeeded
        self._on_fragment = on_fragment
        self._limit = limit
        self._decode = Decoder().decode

    def receive_event(self, event: Event | EventTooLong, posted: PendingPost | None = None) -> None:
        """Process one event of a stream; `posted` is the request the stream belongs to, if any.

        Raises:
            RemoteProtocolError: The event cannot be read, and `posted` has no response yet.
        """
        try:
            if isinstance(event, EventTooLong):
                why = f"An event of {event.size} bytes is over the limit of {self._limit}"
                raise RemoteProtocolError(why, code=INVALID_REQUEST)
            if not event.data:
                return  # the event only sets the last event id
            if event.event == "message":
                message = self._decode(event.data)
                if posted is not None:
                    if isinstance(message, Request):
                        # Kept, to cancel it later: a closed stream carries no cancellation.
                        posted.questions.append(message.id)
                    self.related_request_id = posted.message.id
                self.receive(message)
            elif posted is not None and event.event in EVENTS:
                self._receive_fragment(event, posted)
        except RemoteProtocolError as exc:
            # The unreadable event was probably the response, so the request fails at once.
            if posted is not None and not posted.answered:
                raise
            if isinstance(event, Event):
                exc.excerpt, exc.frame = repr(event.data[:200]), event.data
                exc.size = len(event.data)
            self.hand_over(exc)
        finally:
            self.related_request_id = None

    def receive(self, message: Message | Batch) -> None:
        """Deliver a message; a response completes its pending request first."""
        if isinstance(message, Success | Failure):
            self._settle(message)
        elif isinstance(message, Batch):
            for item in message.items:
                if isinstance(item, Success | Failure):
                    self._settle(item)
        self.hand_over(message)

    def lose(self, posted: PendingPost, error: FairleadError) -> None:
        """Report that a request will not get a response, unless it is no longer pending."""
        # Compared by identity, because a later request may use the same id.
        if self.pending.get(posted.message.id) is posted:
            del self.pending[posted.message.id]
            self.hand_over(RequestLost(posted.message.id, error))

    def _receive_fragment(self, event: Event, posted: PendingPost) -> None:
        if posted.fragments is None:
            posted.fragments = FragmentAssembler(posted.message.id, self._limit)
        answer = posted.fragments.take(event, self._on_fragment)
        if answer is not None:
            self.receive(answer)

    def _settle(self, answer: Success | Failure) -> None:
        if answer.id is None or (posted := self.pending.pop(answer.id, None)) is None:
            return
        posted.answered = True
        if isinstance(answer, Success):
            self._succeeded(posted, answer)
