"""Composition of interceptors around a handler, used in all parts of Fairlead."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from .exchange import Answer, Exchange, Handler

__all__ = ["Interceptor", "Proceed", "chain"]

Proceed: TypeAlias = Callable[[Exchange], Awaitable[Answer]]


class Interceptor(Protocol):
    """A callable that acts before, after or instead of the next handler.

    Servers, clients and gateways use the same signature.
    """

    def __call__(self, exchange: Exchange, proceed: Proceed) -> Awaitable[Answer]:
        """Return the result of an exchange, usually `await proceed(exchange)`.

        Concurrent calls for several exchanges are allowed.

        Raises:
            RpcError: The interceptor refuses the request.
        """
        ...


def chain(interceptors: Sequence[Interceptor], handler: Handler) -> Handler:
    """Wrap a handler in interceptors; the first is outermost.

    Without interceptors, the handler itself is returned.
    """
    for interceptor in reversed(interceptors):
        handler = _around(interceptor, handler)
    return handler


def _around(interceptor: Interceptor, proceed: Handler) -> Handler:
    # A plain function that returns the awaitable, because another coroutine would cost time.
    def handle(exchange: Exchange) -> Awaitable[Answer]:
        return interceptor(exchange, proceed)

    return handle
