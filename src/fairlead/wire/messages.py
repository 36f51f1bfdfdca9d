"""The four kinds of JSON-RPC message.

`params`, `result` and the error object stay the bytes they came as: only the layer that knows
their type decodes them, once. Whatever outlives the frame it was cut from should be a `.copy()`.
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
Params: TypeAlias = Raw | UnsetType  # the bytes of a JSON object, or absent

# Members of the envelope that JSON-RPC does not define; kept so that a relay loses nothing.
Extra: TypeAlias = dict[str, Raw] | None


class Request(Struct, frozen=True, gc=False):
    """Something asked; an answer with the same id is owed."""

    id: RequestId
    method: str
    params: Params = UNSET
    extra: Extra = None


class Notification(Struct, frozen=True, gc=False):
    """Something told; nobody answers it."""

    method: str
    params: Params = UNSET
    extra: Extra = None


class Success(Struct, frozen=True, gc=False):
    """The answer to a request that went well."""

    id: RequestId
    result: Raw
    extra: Extra = None


class Failure(Struct, frozen=True, gc=False):
    """The answer to a request that did not.

    `error` is the whole error object as bytes, `code` and `message` are read from it. `id` is
    `None` when the id of the request could not be read; `absent_id` then says that it is left out,
    not sent as null.
    """

    id: RequestId | None
    code: int
    message: str
    error: Raw
    extra: Extra = None
    absent_id: bool = False


Message: TypeAlias = Request | Notification | Success | Failure


def size_of(message: Request | Notification) -> int:
    """Return how many bytes a message keeps in memory; a name may be as long as params."""
    params = message.params
    size = 0 if isinstance(params, UnsetType) else len(memoryview(params))
    return size + len(message.method)


# The same things under the names of the requirements.
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
    """A `Failure` made here, from plain values.

    Most messages quote what the peer sent, so their size is limited once more here.
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
