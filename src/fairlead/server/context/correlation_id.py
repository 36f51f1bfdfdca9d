"""The id that names a request in logs and error results: given by whoever asked, or made up."""

import secrets

from ...interceptor import Exchange

__all__ = ["HEADER", "correlation_id"]

HEADER = "x-correlation-id"
_LONGEST = 128


def correlation_id(exchange: Exchange) -> str:
    """What the transport brought along, if it can stand in a log; else a new one."""
    headers = exchange.transport.headers
    given = None if headers is None else headers.get(HEADER)
    if given and len(given) <= _LONGEST and given.isprintable():
        return given
    return secrets.token_hex(8)
