"""Interceptors around handlers, the composition that all parts of Fairlead use."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from .exchange import Answer, Exchange, Handler

__all__ = ["Interceptor", "Proceed", "chain"]

Proceed: TypeAlias = Callable[[Exchange], Awaitable[Answer]]


class Interceptor(Protocol):
    """Callable that acts before, after or instead of the next handler.

    Servers, clients and gateways use the same signature.
    """

    def __call__(self, exchange: Exchange, proceed: Proceed) -> Awaitable[Answer]:
        """Return the result of an exchange, usually that of `await proceed(exchange)`.

        Concurrent calls for several exchanges are allowed.

        Raises:
            RpcError: The interceptor refuses the request.
        """
        ...


def chain(interceptors: Sequence[Interceptor], handler: Handler) -> Handler:
    """Return the handler with interceptors around it, the first one outermost.

    Without interceptors, the handler itself is returned.
    """
    for interceptor in reversed(interceptors):
        handler = _around(interceptor, handler)
    return handler


def _around(interceptor: Interceptor, proceed: Handler) -> Handler:
    # A plain function that returns the awaitable: another coroutine per interceptor would cost
    # time.
    def handle(exchange: Exchange) -> Awaitable[Answer]:
        return interceptor(exchange, proceed)

    return handle
