"""Leave alone for a while what keeps failing, then try carefully whether it is back."""

import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from enum import StrEnum
from types import TracebackType
from typing import Any

from ..errors import CircuitOpenError, RpcError

__all__ = ["CircuitBreaker", "CircuitState"]

log = logging.getLogger("fairlead.interceptor")


class CircuitState(StrEnum):
    CLOSED = "closed"  # everything passes
    OPEN = "open"  # nothing does
    HALF_OPEN = "half-open"  # a few at a time do, to see how it goes


class CircuitBreaker:
    """Refuses calls after `failure_threshold` failures in a row, for `reset_timeout` seconds.

    Then at most `half_open_max_calls` at the same time are let through. One failure among them
    begins another wait; `success_threshold` successes end it.

        async with breaker:  # or `with`
            await upstream.call(...)

    An exception is a failure. A cancellation counts as nothing, and neither does anything else that
    is no `Exception`. A JSON-RPC error is an answer, so whoever gave it is there: it is a success.
    `counts` can say otherwise about exceptions.

    Raises (on the way in):
        CircuitOpenError: if it is not tried now.
    """

    def __init__(
        self,
        failure_threshold: int = 5,
        reset_timeout: float = 30.0,
        half_open_max_calls: int = 1,
        success_threshold: int = 2,
        *,
        name: str = "",
        counts: Callable[[Exception], bool] = lambda exc: not isinstance(exc, RpcError),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name` is what the breaker protects, for people."""
        if min(failure_threshold, half_open_max_calls, success_threshold) < 1:
            raise ValueError("the thresholds and probes of a circuit breaker are at least 1")
        if reset_timeout < 0:
            raise ValueError(f"a reset timeout is not negative: {reset_timeout:g}")
        self.name = name
        self._failure_threshold = failure_threshold
        self._reset_timeout = reset_timeout
        self._max_probes = half_open_max_calls
        self._success_threshold = success_threshold
        self._counts = counts
        self._clock = clock
        self._opened = 0  # how often it opened
        self._refused = 0
        self._turn = 0  # goes up with every change of state: what began before it says nothing now
        self._failures = 0  # in a row
        self._successes = 0  # of probes
        self._probes = 0  # under way
        self._until = 0.0
        self._state = CircuitState.CLOSED

    @property
    def state(self) -> CircuitState:
        """The state now; an open circuit becomes half-open when its time has come."""
        if self._state is CircuitState.OPEN and self._clock() >= self._until:
            self._enter(CircuitState.HALF_OPEN)
        return self._state

    @property
    def remaining(self) -> float:
        """The seconds for which it stays open."""
        return self._until - self._clock() if self.state is CircuitState.OPEN else 0.0

    @property
    def metrics(self) -> dict[str, Any]:
        """The state, and how often calls were refused and the circuit opened."""
        return {
            "state": self.state.value,
            "remaining": self.remaining,
            "failures": self._failures,
            "probes": self._probes,
            "refused": self._refused,
            "opened": self._opened,
        }

    def admit(self) -> "BreakerPermit":
        """Let one call through; whoever made it reports how it went.

        Raises:
            CircuitOpenError: if it is not tried now.
        """
        state = self.state
        if state is CircuitState.HALF_OPEN and self._probes < self._max_probes:
            self._probes += 1
        elif state is not CircuitState.CLOSED:
            self._refused += 1
            raise CircuitOpenError(self.remaining, self.name)
        return BreakerPermit(self, self._turn)

    def reset(self) -> None:
        """Close it, as if nothing had happened, and forget the counts."""
        self._refused = self._opened = 0
        self._enter(CircuitState.CLOSED)

    def __enter__(self) -> "CircuitBreaker":
        admission = self.admit()
        _entered.set((*_entered.get(), admission))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stack = _entered.get()
        mine = [index for index, admission in enumerate(stack) if admission.breaker is self]
        if mine:
            _entered.set(stack[: mine[-1]] + stack[mine[-1] + 1 :])
            stack[mine[-1]].ended(exc)
        else:  # left in another task than it was entered in: it can only count as of now
            self._ended(self._turn, exc)

    async def __aenter__(self) -> "CircuitBreaker":
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, exc, traceback)

    def _ended(self, turn: int, exc: BaseException | None) -> None:
        if turn != self._turn:
            return
        probing = self._state is CircuitState.HALF_OPEN
        if probing:
            self._probes = max(0, self._probes - 1)
        if exc is not None and not isinstance(exc, Exception):
            return
        if exc is not None and self._counts(exc):
            self._failures += 1
            if probing or self._failures >= self._failure_threshold:
                self._enter(CircuitState.OPEN)
        elif probing:
            self._successes += 1
            if self._successes >= self._success_threshold:
                self._enter(CircuitState.CLOSED)
        else:
            self._failures = 0

    def _enter(self, state: CircuitState) -> None:
        self._state = state
        self._turn += 1
        self._failures = self._successes = self._probes = 0
        self._until = 0.0
        if state is CircuitState.OPEN:
            self._opened += 1
            self._until = self._clock() + self._reset_timeout
            log.warning(
                "%s failed too often: not tried for %g s", self.name or "it", self._reset_timeout
            )


class BreakerPermit:
    """One call that was let through. Only the first report counts."""

    __slots__ = ("_over", "_turn", "breaker")

    def __init__(self, breaker: CircuitBreaker, turn: int) -> None:
        self.breaker = breaker
        self._turn = turn
        self._over = False

    def ended(self, exc: BaseException | None = None) -> None:
        """The call is over, with this exception or with an answer."""
        if not self._over:
            self._over = True
            self.breaker._ended(self._turn, exc)


# Calls of several tasks are under way in one breaker at once; each task finds its own here.
_entered: ContextVar[tuple[BreakerPermit, ...]] = ContextVar("_entered", default=())
