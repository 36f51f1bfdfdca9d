"""The id that names a request in logs and error results: given by whoever asked, or made up."""

import os

from ...interceptor import Exchange

__all__ = ["HEADER", "correlation_id", "new_correlation_id"]

HEADER = "x-correlation-id"
_LONGEST = 128


def correlation_id(exchange: Exchange) -> str:
    """What the transport brought along, if it can stand in a log; else a new one."""
    headers = exchange.transport.headers
    given = None if headers is None else headers.get(HEADER)
    if given and len(given) <= _LONGEST and given.isprintable():
        return given
    return new_correlation_id()


def new_correlation_id() -> str:
    """Return an id that no other request has."""
    return os.urandom(8).hex()  # `secrets` does the same, and loads twelve modules
