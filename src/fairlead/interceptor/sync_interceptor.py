"""Interceptors that never wait, split into a function before and a function after the handler.

For most interceptors, creating a coroutine costs more than running their code. If no interceptor in
a chain has to wait, only the two functions are called.
"""

from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias, cast

from msgspec import Raw

from .chain import Proceed
from .exchange import Answer, Exchange
from .interceptor_base import InterceptorBase

__all__ = ["ANSWERS", "After", "Outcome", "SyncInterceptor", "checked_outcome"]

# An answer, or the exception that was raised, including a cancellation.
Outcome: TypeAlias = Answer | BaseException
After: TypeAlias = Callable[[Outcome], Outcome]

ANSWERS: Final = frozenset({bytes, Raw, type(None)})


class SyncInterceptor(InterceptorBase):
    """Interceptor with plain functions, which can also be called like any other interceptor."""

    waits: ClassVar = False

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        """Return the exchange to forward, and a function that receives the outcome, or None.

        The function is called once and returns the outcome for the caller.

        Raises:
            RpcError: The interceptor refuses the request.
        """
        raise NotImplementedError

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        exchange, after = self.before(exchange)
        if after is None:
            return await proceed(exchange)
        outcome: Outcome
        try:
            outcome = await proceed(exchange)
        # `BaseException`, because `after` must also receive a cancellation.
        except BaseException as exc:
            outcome = after(exc)
            if outcome is exc:
                raise
        else:
            outcome = after(outcome if type(outcome) in ANSWERS else checked_outcome(outcome))
        if isinstance(outcome, BaseException):
            raise outcome from None
        return outcome


def checked_outcome(outcome: object) -> Outcome:
    """Return an interceptor's outcome, or a `TypeError` if it is invalid."""
    if type(outcome) in ANSWERS or isinstance(outcome, bytes | BaseException):
        return cast(Outcome, outcome)
    return TypeError(f"an interceptor must return bytes or None, not {type(outcome).__name__}")
