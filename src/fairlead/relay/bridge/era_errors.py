"""Conversion of errors between the eras."""

from typing import Final

import msgspec
from msgspec import Raw

from ...errors import RpcError
from ...protocol.json_edit import encoded, members_of
from ...wire.error_codes import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND

__all__ = ["for_handshake_client", "for_stateless_client"]

# Error codes of the stateless era about headers and revisions.
# They concern only the relay and the server, and do not exist in the handshake era.
_BETWEEN_US: Final = (-32020, -32022)


def for_handshake_client(method: str, error: RpcError) -> RpcError:
    """Convert an error of a stateless server for a client of the handshake era."""
    if error.code == INVALID_PARAMS and method == "resources/read" and _names_uri(error):
        return _recoded(error, RESOURCE_NOT_FOUND)
    if error.code in _BETWEEN_US:
        return _wrapped(error)
    return error


def for_stateless_client(error: RpcError) -> RpcError:
    """Convert an error of a handshake-era server for a stateless client."""
    if error.code == RESOURCE_NOT_FOUND:
        return _recoded(error, INVALID_PARAMS)
    if -32099 <= error.code <= -32000:
        return _wrapped(error)
    return error


def _names_uri(error: RpcError) -> bool:
    members = members_of(error.raw)
    data = None if members is None else members_of(members.get("data"))
    return data is not None and "uri" in data


def _recoded(error: RpcError, code: int) -> RpcError:
    """Return the same error with another code."""
    members = members_of(error.raw)
    if members is None:
        return RpcError(code, error.message, error.data)
    members["code"] = encoded(code)
    return RpcError(code, error.message, raw=bytes(encoded(members)))


def _wrapped(error: RpcError) -> RpcError:
    original = error.raw
    if original is None:
        plain = {"code": error.code, "message": error.message, "data": error.data}
        original = msgspec.json.encode(plain)
    data = {"source": "proxy", "original": Raw(original)}
    body = {"code": INTERNAL_ERROR, "message": error.message, "data": data}
    return RpcError(INTERNAL_ERROR, error.message, raw=msgspec.json.encode(body))
