"""Dispatch of inbound messages to requests and handlers.

Invalid messages are counted; a server refuses them, a client logs them.
"""

import logging
import time
from collections.abc import Callable
from typing import Literal

from ..errors import ChannelClosed, RemoteProtocolError
from ..interceptor import MalformedFrame, OnMalformed
from ..limits import BATCH_QUEUE
from ..protocol.conversation.conversation import ConversationRole
from ..protocol.conversation.conversation_events import (
    ConversationEvent,
    ConversationRestarted,
    NotificationReceived,
    ProgressReceived,
    RequestCancelled,
    RequestReceived,
    RequestRejected,
    ResponseReceived,
    UnmatchedMessage,
)
from ..transport.channel import Incoming, RequestLost
from ..wire import Batch, Failure, Notification, Request, Success, encode, failure
from ..wire.error_codes import INVALID_REQUEST
from .connection_state import SHOWN_LINES, ConnectionState
from .inbound_requests import InboundRequests
from .outbound_requests import OutboundRequests

__all__ = ["InboundDispatcher"]

# A server that wrote this many lines or bytes without one valid message is disconnected.
GARBAGE_LINES, GARBAGE_BYTES = 100, 64 << 10

WARNED_LINES = 3  # invalid lines of a connection that are logged one by one
WARNING_INTERVAL = 60.0  # seconds between further warnings about invalid lines
SHOWN_TEXT = 100  # characters of an invalid line in a warning

log = logging.getLogger("fairlead.peer")
output_log = logging.getLogger("fairlead.peer.output")

_MESSAGES = (Success, Notification, Failure, Request)


class InboundDispatcher:
    """Receiver of all items that a channel delivers."""

    def __init__(
        self,
        line: ConnectionState,
        outbound: OutboundRequests,
        inbound: InboundRequests,
        *,
        on_notification: Callable[[Notification], None] | None,
        on_error: Callable[[Exception], None] | None,
        hang_up: Callable[[ChannelClosed], None],
    ) -> None:
        """`hang_up` closes a connection on which the peer does not send MCP messages."""
        self._line = line
        self._conversation = line.conversation
        self._outbound = outbound
        self._inbound_requests = inbound
        self._on_notification = on_notification
        self._on_error = on_error
        self._hang_up = hang_up
        # called for frames that are invalid, are refused or match no request
        self.on_malformed: OnMalformed | None = None
        self.unmatched_count = 0
        self.malformed = 0
        self._next_warning = 0.0  # time of the next warning about unreadable output
        self._unmentioned = 0  # unreadable frames since the last warning
        self._heard = False  # True after the first valid message
        self._garbage = (0, 0)  # invalid lines and bytes before the first valid message
        self.unreadable_output: list[str] = []  # the first invalid lines, redacted and escaped

    def deliver(self, item: Incoming) -> None:
        """Process an item of the channel. Returns at once, never raises and awaits nothing."""
        if not self._line.open:
            return  # the connection is closed, but the channel still reads
        try:
            # The two most frequent cases come first and do not build an event for the conversation.
            if type(item) is Request:
                self._heard = True
                event = self._conversation.receive_request(item)
                if type(event) is RequestReceived:
                    self._inbound_requests.receive_request(event)
                else:
                    self.apply_event(event)
                    if isinstance(event, RequestRejected) and self.on_malformed is not None:
                        self._offended("refused", encode(item), event.answer.message)
            elif type(item) is Success and self._conversation.receive_result(item.id):
                self._heard = True
                self._outbound.receive_response(item)
            elif isinstance(item, _MESSAGES):
                self._heard = True
                self.apply_event(self._conversation.receive(item))
            elif isinstance(item, Batch):
                self._batch(item)
            elif isinstance(item, RequestLost):
                self._outbound.fail_request(item.request_id, item.error, "lost")
            else:
                self._unreadable(item)
        # Handlers and callbacks are third-party code, but `deliver` must never raise.
        except Exception as exc:
            log.exception("a message could not be handled")
            self.report(exc)

    def apply_event(self, event: ConversationEvent) -> None:
        """Apply the effect of a message as determined by the conversation."""
        if isinstance(event, ResponseReceived):
            self._outbound.receive_response(event.message)
            return
        match event:
            case ProgressReceived():
                self._outbound.progressed(event)
            case NotificationReceived(message):
                if self._on_notification is not None:
                    self._on_notification(message)
            case RequestCancelled():
                self._inbound_requests.cancelled(event)
            case ConversationRestarted(request, cancelled):
                self._inbound_requests.restart(request, cancelled)
            case RequestRejected(answer):
                log.warning("refused a request: %s", answer.message)
                self._line.send_quietly(answer)
            case UnmatchedMessage(message, why):
                self.unmatched_count += 1
                log.debug("stray message: %s", why)
                if self.on_malformed is not None:
                    self._offended("unmatched", encode(message), why)

    def report(self, error: Exception) -> None:
        """Call `on_error`, if set."""
        if self._on_error is not None:
            try:
                self._on_error(error)
            except Exception:
                log.exception("on_error failed")

    def _batch(self, batch: Batch) -> None:
        if not self._conversation.accepts_batches:
            error = RemoteProtocolError(
                "Batches are not part of the agreed protocol version", code=INVALID_REQUEST
            )
            self._unreadable(error)
            return
        for item in batch.items:
            # Responses that need no task would accumulate for a peer that does not read.
            if type(item) is Request and self._line.channel.congested:
                BATCH_QUEUE.hit()
                why = "The responses to this batch are too large; send its requests one by one"
                self._line.send_quietly(failure(item.id, INVALID_REQUEST, why))
            else:
                self.deliver(item)

    # Invalid frames

    def _unreadable(self, error: RemoteProtocolError) -> None:
        self.malformed += 1
        if self.on_malformed is not None:
            self._offended("not a message", error.frame, str(error), error.size)
        self._settle_unreadable(error)
        if self._conversation.role is ConversationRole.SERVER:
            self._refuse_unreadable(error)
            return
        # imported here: rarely needed, and slow to import
        from ..redaction.redact_text import redact

        shown = redact(error.excerpt)
        self._warn_of_output(shown)
        self.report(error)
        line = repr(shown)[1:-1]
        self._line.add_output(line)
        if not self._heard:
            if len(self.unreadable_output) < SHOWN_LINES:
                self.unreadable_output.append(line)
            self._count_garbage(error)

    def _warn_of_output(self, text: str) -> None:
        """Log a warning about output of a server that is not a message, with its name and a remedy.

        After the first lines, one warning a minute says how many were skipped meanwhile.
        """
        now = time.monotonic()
        if self.malformed > WARNED_LINES and now < self._next_warning:
            self._unmentioned += 1
            return
        more, self._unmentioned = self._unmentioned, 0
        self._next_warning = now + WARNING_INTERVAL
        name = self._line.peer_name
        server = f"the server {name!r}" if name else "the server"
        if self._line.channel.context.transport_type == "stdio":
            problem, remedy = "printed a line to stdout", "; it should print logs to stderr"
        else:
            problem, remedy = "sent a frame", ""
        since = f" ({more} similar lines since the last warning)" if more else ""
        shown = repr(text if len(text) <= SHOWN_TEXT else f"{text[: SHOWN_TEXT - 1]}…")
        output_log.warning(
            "%s %s that is not a JSON-RPC message: %s; it was skipped%s%s",
            *(server, problem, shown, since, remedy),
        )

    def _settle_unreadable(self, error: RemoteProtocolError) -> None:
        """Fail the request whose response is unreadable or too long."""
        answers = error.answers
        # A client assumes that the id of an unreadable frame belongs to one of its requests.
        if answers is None and self._conversation.role is ConversationRole.CLIENT:
            answers = error.request_id
        if answers is not None:
            self._outbound.fail_request(answers, error, "unreadable response")

    def _refuse_unreadable(self, error: RemoteProtocolError) -> None:
        log.warning("refused a frame that is not a message: %s", error)
        absent = error.request_id is None and not self._conversation.null_error_id
        self._line.send_quietly(failure(error.request_id, error.code, str(error), absent_id=absent))

    def release(self) -> None:
        """Drop the reference to the peer of an ended connection."""
        self._hang_up = _ignore

    def _count_garbage(self, error: RemoteProtocolError) -> None:
        """Close the connection to a program that writes no valid messages to its stdout.

        Otherwise callers would wait until their timeouts.
        """
        lines, size = self._garbage
        self._garbage = lines, size = lines + 1, size + error.size
        if lines >= GARBAGE_LINES or size >= GARBAGE_BYTES:
            first = self.unreadable_output[0]
            why = f"the server writes output that is not MCP, starting with '{first}'"
            public = "writes output that is not MCP messages"
            self._hang_up(ChannelClosed(why, public=public))

    def _offended(
        self,
        kind: Literal["not a message", "unmatched", "refused"],
        frame: bytes,
        why: str,
        size: int = 0,
    ) -> None:
        assert self.on_malformed is not None
        self.on_malformed(
            MalformedFrame(
                frame=frame,
                size=size or len(frame),
                kind=kind,
                why=why,
                direction=self._line.direction,
                transport=self._line.channel.context,
            )
        )


def _ignore(end: ChannelClosed) -> None:
    """Do nothing, because the connection has ended."""
