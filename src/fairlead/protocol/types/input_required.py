"""Input requests of a stateless server, sent before it can complete a request."""

from typing import Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

__all__ = ["InputRequest", "InputRequests", "InputRequiredResult"]

# Keyed by names that the server chose; the client returns its responses under the same names.
InputRequests: TypeAlias = dict[str, Raw]  # each an InputRequest


class InputRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """One request for sampling, elicitation or roots, in the form of the request without an id."""

    method: str
    params: Raw | UnsetType = UNSET


class InputRequiredResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """Result that asks the client for input and for a retry with the unchanged state.

    At least one of `input_requests` and `request_state` is present; state alone means: retry.
    """

    result_type: Literal["input_required"] = "input_required"
    input_requests: InputRequests | UnsetType = UNSET
    request_state: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
