"""Messages and session ids in HTTP responses."""

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
    """Return a `notifications/cancelled` for a request."""
    return Notification("notifications/cancelled", Raw(to_json({"requestId": request_id})))


def session_id_of(reply: HttpResponse) -> str | None:
    """Return the session id that a server assigned; an invalid id counts as none."""
    given = reply.header("mcp-session-id")
    # The specification allows visible ASCII only (Streamable HTTP, section "Session Management").
    if given and all("!" <= character <= "~" for character in given):
        return given
    return None


def failure_in(body: bytes) -> Failure | None:
    """Return the JSON-RPC error in the body of an error response, if there is one."""
    if not body.lstrip().startswith(b"{"):
        return None
    try:
        message = Decoder().decode(body)
    except RemoteProtocolError:
        return None
    return message if isinstance(message, Failure) else None


def is_method_not_found(failure: Failure | None, request: Request) -> bool:
    """Return True if a 404 means an unknown method rather than an unknown session."""
    return failure is not None and failure.code == METHOD_NOT_FOUND and failure.id == request.id


def with_request_id(failure: Failure, request_id: RequestId) -> Failure:
    """Return a copy of an error for the request with this id."""
    return Failure(request_id, failure.code, failure.message, failure.error, failure.extra)
