"""Input: how a stateless server asks back before it can finish a request."""

from typing import Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

__all__ = ["InputRequest", "InputRequests", "InputRequiredResult"]

# Keyed by names that the server chose; answers come back under the same ones.
InputRequests: TypeAlias = dict[str, Raw]  # each an InputRequest


class InputRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """One question: sampling, elicitation or roots, as the request would be but without an id."""

    method: str
    params: Raw | UnsetType = UNSET


class InputRequiredResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """Asks the client to answer and to send the request again, with the state exactly as given.

    At least one of `input_requests` and `request_state` is there; state alone means: try again.
    """

    result_type: Literal["input_required"] = "input_required"
    input_requests: InputRequests | UnsetType = UNSET
    request_state: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
