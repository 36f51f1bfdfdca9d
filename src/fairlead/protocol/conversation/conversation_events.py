"""What a `Conversation` says about a message it was fed: one event for each, in the past tense."""

from typing import TypeAlias

from msgspec import Struct

from ...wire import Failure, Message, Notification, Request, RequestId, Success
from ..caller import Caller, Head

__all__ = ["Answered", "Asked", "Cancelled", "Event", "Progressed", "Refused", "Stray", "Told"]


class Asked(Struct, frozen=True, gc=False):
    """The peer wants something; an answer is owed."""

    message: Request
    caller: Caller
    head: Head


class Told(Struct, frozen=True, gc=False):
    """The peer let us know something."""

    message: Notification


class Answered(Struct, frozen=True, gc=False):
    """The outcome of a request of ours."""

    message: Success | Failure


class Progressed(Struct, frozen=True, gc=False):
    """A request of ours is under way and says how far it is."""

    request_id: RequestId
    message: Notification


class Cancelled(Struct, frozen=True, gc=False):
    """The peer no longer waits for a request of its own: stop, and do not answer."""

    request_id: RequestId
    reason: str
    message: Notification


class Refused(Struct, frozen=True, gc=False):
    """The request cannot be served; this is the answer to send."""

    answer: Failure


class Stray(Struct, frozen=True, gc=False):
    """Late, unknown or going the wrong way: counted, otherwise harmless."""

    message: Message
    why: str


Event: TypeAlias = Asked | Told | Answered | Progressed | Cancelled | Refused | Stray
