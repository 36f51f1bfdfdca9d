"""An exchange with another message in it."""

from typing import Any

import msgspec
from msgspec import UnsetType

from ..errors import RpcError
from ..interceptor import Exchange
from ..protocol.caller import read_params_head
from ..protocol.json_edit import encoded, members_of
from ..wire import Params, to_json

__all__ = ["error_json", "with_params", "with_whole_params"]


def with_params(exchange: Exchange, **members: Any) -> Exchange:
    """The same exchange with other members in its params; the rest of them stays as it came."""
    params = exchange.message.params
    old = {} if isinstance(params, UnsetType) else members_of(params) or {}
    changed = with_whole_params(exchange, encoded({**old, **members}))
    if "name" in members:
        # They were the server's and the client's words for the other name.
        changed.alias = changed.displayed = None
    return changed


def error_json(error: RpcError) -> bytes:
    """Return the error object of an answer, as it came if it came from a peer."""
    if error.raw is not None:
        return error.raw
    said = {"code": error.code, "message": error.message, "data": error.data}
    return to_json({name: value for name, value in said.items() if value is not None})


def with_whole_params(exchange: Exchange, params: Params) -> Exchange:
    """The same exchange with other params."""
    if exchange.did is None:
        exchange.did = []  # shared by both, or whoever holds the first one would not hear
    message = msgspec.structs.replace(exchange.message, params=params)
    return msgspec.structs.replace(exchange, message=message, head=read_params_head(params))
