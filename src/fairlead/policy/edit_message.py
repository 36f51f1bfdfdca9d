"""Copies of an exchange with changed params."""

from typing import Any

import msgspec
from msgspec import UnsetType

from ..errors import RpcError
from ..interceptor import Exchange
from ..protocol.caller import read_params_head
from ..protocol.json_edit import RawMembers, encoded, members_of
from ..wire import Params, to_json

__all__ = ["error_json", "members_of_params", "with_params", "with_whole_params"]


def with_params(exchange: Exchange, **members: Any) -> Exchange:
    """Return a copy of the exchange with some members of its params replaced."""
    old = members_of_params(exchange.message.params) or {}
    changed = with_whole_params(exchange, encoded({**old, **members}))
    if "name" in members:
        # Both describe the old target: the server's own name, and the name for clients.
        changed.alias = changed.displayed = None
    return changed


def members_of_params(params: Params) -> RawMembers | None:
    """Return the members of params; empty if absent, None if the params are not an object."""
    return {} if isinstance(params, UnsetType) else members_of(params)


def error_json(error: RpcError) -> bytes:
    """Return the error object of a response. An error from a peer stays unchanged."""
    if error.raw is not None:
        return error.raw
    said = {"code": error.code, "message": error.message, "data": error.data}
    return to_json({name: value for name, value in said.items() if value is not None})


def with_whole_params(exchange: Exchange, params: Params) -> Exchange:
    """Return a copy of the exchange with different params."""
    if exchange.did is None:
        # Created before the copy, so that the original also gets notes added to the copy.
        exchange.did = []
    message = msgspec.structs.replace(exchange.message, params=params)
    return msgspec.structs.replace(exchange, message=message, head=read_params_head(params))
