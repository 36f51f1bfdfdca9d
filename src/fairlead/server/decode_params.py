"""Parameters that handlers of the server decode themselves."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import Raw, UnsetType

from ..errors import RpcError
from ..interceptor import Exchange
from ..wire.error_codes import INVALID_PARAMS

__all__ = ["decode_params", "required_uri"]

P = TypeVar("P")


def decode_params(
    params: Raw | UnsetType, kind: type[P], error: Callable[[int, str], RpcError] = RpcError
) -> P:
    """Decode the parameters of a request; absent ones are an empty object.

    Raises:
        RpcError: -32602, they are not of this type; `error` makes it.
    """
    try:
        return msgspec.json.decode(b"{}" if isinstance(params, UnsetType) else params, type=kind)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise error(INVALID_PARAMS, f"Invalid params: {exc}") from exc


def required_uri(exchange: Exchange) -> str:
    """Return the URI that a request names. Raises `RpcError` -32602 if there is none."""
    uri = exchange.head.uri
    if isinstance(uri, UnsetType):
        raise RpcError(INVALID_PARAMS, "params.uri is required: the URI of a resource")
    return uri
