"""Decoding of parameters in the handlers of the server."""

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
    """Decode the parameters of a request; absent parameters are decoded as an empty object.

    Raises:
        RpcError: -32602, the parameters do not have this type. `error` builds the exception.
    """
    try:
        return msgspec.json.decode(b"{}" if isinstance(params, UnsetType) else params, type=kind)
    # msgspec raises RecursionError for deeply nested JSON.
    except (msgspec.DecodeError, RecursionError) as exc:
        raise error(INVALID_PARAMS, f"Invalid params: {exc}") from exc


def required_uri(exchange: Exchange) -> str:
    """Return the URI of a request.

    Raises:
        RpcError: -32602, the URI is missing.
    """
    uri = exchange.head.uri
    if isinstance(uri, UnsetType):
        raise RpcError(INVALID_PARAMS, "params.uri is required: the URI of a resource")
    return uri
