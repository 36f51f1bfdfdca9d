"""The id of a request in logs and error results: sent by the client or generated."""

import os

from ...interceptor import Exchange

__all__ = ["HEADER", "correlation_id", "new_correlation_id"]

HEADER = "x-correlation-id"
_LONGEST = 128  # maximum number of characters of a correlation id


def correlation_id(exchange: Exchange) -> str:
    """Return the id from the headers if it is safe to log; otherwise generate one."""
    headers = exchange.transport.headers
    given = None if headers is None else headers.get(HEADER)
    # An unlimited or unprintable id would let a client forge log lines.
    if given and len(given) <= _LONGEST and given.isprintable():
        return given
    return new_correlation_id()


def new_correlation_id() -> str:
    """Return a random id."""
    return os.urandom(8).hex()  # `secrets.token_hex` returns the same but imports twelve modules.
