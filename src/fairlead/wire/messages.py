"""The four kinds of JSON-RPC messages.

`params`, `result` and the error object stay bytes. They are decoded once, by the layer that knows
their type. Make a `.copy()` of a `Raw` that outlives its frame, because a `Raw` keeps the whole
frame in memory.
"""

from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..limits import ERROR_DATA, ERROR_TEXT
from .json import to_json
from .quote_text import shortened

__all__ = [
    "Failure",
    "JsonRpcError",
    "JsonRpcMessage",
    "JsonRpcNotification",
    "JsonRpcRequest",
    "JsonRpcResponse",
    "Message",
    "Notification",
    "Params",
    "Request",
    "RequestId",
    "Success",
    "failure",
    "size_of",
]

RequestId: TypeAlias = int | str
Params: TypeAlias = Raw | UnsetType  # bytes of a JSON object, or absent

# Envelope members that JSON-RPC does not define, kept so that a relay forwards them.
Extra: TypeAlias = dict[str, Raw] | None


class Request(Struct, frozen=True, gc=False):
    """Message that requires a response with the same id."""

    id: RequestId
    method: str
    params: Params = UNSET
    extra: Extra = None


class Notification(Struct, frozen=True, gc=False):
    """Message without a response."""

    method: str
    params: Params = UNSET
    extra: Extra = None


class Success(Struct, frozen=True, gc=False):
    """Successful response to a request."""

    id: RequestId
    result: Raw
    extra: Extra = None


class Failure(Struct, frozen=True, gc=False):
    """Error response to a request.

    `error` is the complete error object as bytes; `code` and `message` are decoded from it. `id` is
    `None` if the request's id could not be read. In that case `absent_id` selects whether the id is
    omitted or null.
    """

    id: RequestId | None
    code: int
    message: str
    error: Raw
    extra: Extra = None
    absent_id: bool = False


Message: TypeAlias = Request | Notification | Success | Failure


def size_of(message: Request | Notification) -> int:
    """Return the number of bytes that a message keeps in memory.

    The method name is counted, because a peer may make it as long as params.
    """
    params = message.params
    size = 0 if isinstance(params, UnsetType) else len(memoryview(params))
    return size + len(message.method)


# Alternative names that `docs/requirements.md` prescribes.
JsonRpcRequest = Request
JsonRpcNotification = Notification
JsonRpcResponse = Success
JsonRpcError = Failure
JsonRpcMessage: TypeAlias = Message


def failure(
    request_id: RequestId | None,
    code: int,
    message: str,
    data: Any = None,
    *,
    absent_id: bool = False,
) -> Failure:
    """Build a `Failure` from plain values.

    Most messages quote values from the peer, so the sizes of message and data are limited here
    again.
    """
    if len(message) > _LONGEST:
        ERROR_TEXT.hit()
        message = shortened(message, _LONGEST)
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    raw = to_json(error)
    if len(raw) > _LARGEST:
        ERROR_DATA.hit()
        raw = to_json({"code": code, "message": message, "data": {"omitted": len(raw)}})
    return Failure(request_id, code, message, msgspec.Raw(raw), None, absent_id)


_LONGEST = ERROR_TEXT.value
_LARGEST = ERROR_DATA.value
