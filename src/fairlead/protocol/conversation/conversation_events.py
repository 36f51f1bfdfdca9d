"""What a `Conversation` says about a message it was fed: one event for each, in the past tense."""

from typing import TypeAlias

from msgspec import Struct

from ...wire import Failure, Message, Notification, Request, RequestId, Success
from ..caller import Caller, ParamsHead

__all__ = [
    "ConversationEvent",
    "NotificationReceived",
    "ProgressReceived",
    "RequestCancelled",
    "RequestReceived",
    "RequestRejected",
    "ResponseReceived",
    "UnmatchedMessage",
]


class RequestReceived(Struct, frozen=True, gc=False):
    """The peer wants something; an answer is owed."""

    message: Request
    caller: Caller
    head: ParamsHead


class NotificationReceived(Struct, frozen=True, gc=False):
    """The peer let us know something."""

    message: Notification


class ResponseReceived(Struct, frozen=True, gc=False):
    """The outcome of a request of ours."""

    message: Success | Failure


class ProgressReceived(Struct, frozen=True, gc=False):
    """A request of ours is under way and says how far it is."""

    request_id: RequestId
    message: Notification


class RequestCancelled(Struct, frozen=True, gc=False):
    """The peer no longer waits for a request of its own: stop, and do not answer."""

    request_id: RequestId
    reason: str
    message: Notification


class RequestRejected(Struct, frozen=True, gc=False):
    """The request cannot be served; this is the answer to send."""

    answer: Failure


class UnmatchedMessage(Struct, frozen=True, gc=False):
    """Late, unknown or going the wrong way: counted, otherwise harmless."""

    message: Message
    why: str


ConversationEvent: TypeAlias = (
    RequestReceived
    | NotificationReceived
    | ResponseReceived
    | ProgressReceived
    | RequestCancelled
    | RequestRejected
    | UnmatchedMessage
)
