"""Interceptors that wait for nothing, in two halves: what they do before, and what they do after.

A coroutine for each of them, and a place where it stops, cost more than most of what they do. Where
nothing in the way has to wait, only the halves are called.
"""

from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias, cast

from msgspec import Raw

from .chain import Proceed
from .exchange import Answer, Exchange
from .interceptor_base import InterceptorBase

__all__ = ["ANSWERS", "After", "Outcome", "SyncInterceptor", "checked_outcome"]

# What became of it: an answer, or whatever was raised, also that it was cancelled.
Outcome: TypeAlias = Answer | BaseException
After: TypeAlias = Callable[[Outcome], Outcome]

ANSWERS: Final = frozenset({bytes, Raw, type(None)})


class SyncInterceptor(InterceptorBase):
    """An interceptor like any other for those who call it as one."""

    waits: ClassVar = False

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        """What is passed on; and what is to be called with the outcome, once, if anything is.

        Raises:
            RpcError: to refuse.
        """
        raise NotImplementedError

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        exchange, after = self.before(exchange)
        if after is None:
            return await proceed(exchange)
        outcome: Outcome
        try:
            outcome = await proceed(exchange)
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
    """What somebody else's code has made of it; or an error, if that is no outcome at all."""
    if type(outcome) in ANSWERS or isinstance(outcome, bytes | BaseException):
        return cast(Outcome, outcome)
    return TypeError(f"an interceptor answered with {type(outcome).__name__}, not with bytes")
