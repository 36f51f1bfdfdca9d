"""Events that a `Conversation` returns, one for each received message."""

from typing import TypeAlias

from msgspec import Struct

from ...wire import Failure, Message, Notification, Request, RequestId, Success
from ..caller import Caller, ParamsHead

__all__ = [
    "ConversationEvent",
    "ConversationRestarted",
    "NotificationReceived",
    "ProgressReceived",
    "RequestCancelled",
    "RequestReceived",
    "RequestRejected",
    "ResponseReceived",
    "UnmatchedMessage",
]


class RequestReceived(Struct, frozen=True, gc=False):
    """Request from the peer, which must be answered."""

    message: Request
    caller: Caller
    head: ParamsHead


class NotificationReceived(Struct, frozen=True, gc=False):
    """Notification from the peer."""

    message: Notification


class ResponseReceived(Struct, frozen=True, gc=False):
    """Response to a request that this end sent."""

    message: Success | Failure


class ProgressReceived(Struct, frozen=True, gc=False):
    """Progress of a request that this end sent."""

    request_id: RequestId
    message: Notification


class RequestCancelled(Struct, frozen=True, gc=False):
    """The peer cancelled its own request: stop processing it, and send no response."""

    request_id: RequestId
    reason: str
    message: Notification


class ConversationRestarted(Struct, frozen=True):
    """The peer sent `initialize` again: its other requests are cancelled,
    and this one is served.
    """

    request: RequestReceived
    cancelled: tuple[RequestId, ...]


class RequestRejected(Struct, frozen=True, gc=False):
    """Request that must be refused, with the error response to send."""

    answer: Failure


class UnmatchedMessage(Struct, frozen=True, gc=False):
    """Message that is late, unknown or in the wrong direction. It is counted and then ignored."""

    message: Message
    why: str


ConversationEvent: TypeAlias = (
    RequestReceived
    | ConversationRestarted
    | NotificationReceived
    | ResponseReceived
    | ProgressReceived
    | RequestCancelled
    | RequestRejected
    | UnmatchedMessage
)
