"""Handlers around handlers: the one way in which Fairlead composes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from .exchange import Answer, Exchange, Handler

__all__ = ["Interceptor", "Proceed", "chain"]

Proceed: TypeAlias = Callable[[Exchange], Awaitable[Answer]]


class Interceptor(Protocol):
    """Does something before, after or instead of the next handler; the same shape everywhere."""

    def __call__(self, exchange: Exchange, proceed: Proceed) -> Awaitable[Answer]:
        """Answer the exchange, usually with `await proceed(exchange)` in an `async def`.

        May run for many exchanges at once.

        Raises:
            RpcError: to refuse.
        """
        ...


def chain(interceptors: Sequence[Interceptor], handler: Handler) -> Handler:
    """The handler with interceptors around it, the first one outermost.

    Without any, the handler itself.
    """
    for interceptor in reversed(interceptors):
        handler = _around(interceptor, handler)
    return handler


def _around(interceptor: Interceptor, proceed: Handler) -> Handler:
    def handle(exchange: Exchange) -> Awaitable[Answer]:
        return interceptor(exchange, proceed)

    return handle
