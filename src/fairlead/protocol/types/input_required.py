"""Input requests that a stateless server sends before it can complete a request."""

from typing import Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

__all__ = ["InputRequest", "InputRequests", "InputRequiredResult"]

# The server chooses the keys; the client returns its responses under the same keys.
InputRequests: TypeAlias = dict[str, Raw]  # each an InputRequest


class InputRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """A sampling, elicitation or roots request, in the form of a JSON-RPC request without an id."""

    method: str
    params: Raw | UnsetType = UNSET


class InputRequiredResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """Result that asks the client to repeat the request with the requested input and the same
    state.

    At least one of `input_requests` and `request_state` is present. Without input requests, the
    client only repeats the request.
    """

    result_type: Literal["input_required"] = "input_required"
    input_requests: InputRequests | UnsetType = UNSET
    request_state: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
