"""Interceptors that restrict a server to one era, to demonstrate how a gateway bridges the eras."""

from fairlead.errors import RpcError
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.wire.error_codes import METHOD_NOT_FOUND

__all__ = ["only_handshake", "only_stateless"]


async def only_handshake(exchange: Exchange, proceed: Proceed) -> Answer:
    """Reject stateless requests, as servers did before 2026-07-28."""
    if exchange.caller.stateless:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
    return await proceed(exchange)


async def only_stateless(exchange: Exchange, proceed: Proceed) -> Answer:
    """Reject requests in sessions, including `initialize`."""
    if not exchange.caller.stateless:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
    return await proceed(exchange)
