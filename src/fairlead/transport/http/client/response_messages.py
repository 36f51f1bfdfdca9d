"""Small questions about replies and what they carry."""

from msgspec import Raw

from ....errors import RemoteProtocolError
from ....wire import Decoder, Failure, Notification, Request, RequestId, to_json
from ....wire.error_codes import METHOD_NOT_FOUND
from .http1.http_client import HttpResponse

__all__ = [
    "cancelled_notification",
    "failure_in",
    "is_method_not_found",
    "session_id_of",
    "with_request_id",
]


def cancelled_notification(request_id: RequestId) -> Notification:
    """The notification that nobody waits for a request any more."""
    return Notification("notifications/cancelled", Raw(to_json({"requestId": request_id})))


def session_id_of(reply: HttpResponse) -> str | None:
    """The session that a server gives; what is no proper id is none."""
    given = reply.header("mcp-session-id")
    if given and all("!" <= character <= "~" for character in given):
        return given
    return None


def failure_in(body: bytes) -> Failure | None:
    """The error envelope that came with a refusal, if one did."""
    if not body.lstrip().startswith(b"{"):
        return None
    try:
        message = Decoder().decode(body)
    except RemoteProtocolError:
        return None
    return message if isinstance(message, Failure) else None


def is_method_not_found(failure: Failure | None, request: Request) -> bool:
    """A 404 that speaks of the method, not of the session."""
    return failure is not None and failure.code == METHOD_NOT_FOUND and failure.id == request.id


def with_request_id(failure: Failure, request_id: RequestId) -> Failure:
    """The same for a request that it does not name."""
    return Failure(request_id, failure.code, failure.message, failure.error, failure.extra)
