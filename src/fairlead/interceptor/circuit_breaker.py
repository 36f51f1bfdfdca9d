"""Circuit breaker: suspends calls after repeated failures and resumes with trial calls."""

import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from enum import StrEnum
from typing import Any

from msgspec import Struct

from ..errors import CircuitOpenError, RpcError

__all__ = ["CircuitBreaker", "CircuitState"]

log = logging.getLogger("fairlead.interceptor")


class CircuitState(StrEnum):
    CLOSED = "closed"  # calls pass
    OPEN = "open"  # calls are refused
    HALF_OPEN = "half-open"  # a few trial calls pass at a time


class CircuitBreaker:
    """Circuit breaker that opens after `failure_threshold` consecutive failures.

    An open circuit refuses calls for `reset_timeout` seconds. Then at most `half_open_max_calls`
    trial calls at a time pass. A failed trial call opens the circuit again; `success_threshold`
    successes close it.

        async with breaker:  # or `with`
            await upstream.call(...)

    An exception is a failure. A cancellation and other exceptions that are not an `Exception` are
    ignored. A JSON-RPC error is a working server's response, so it counts as a success. Pass
    `counts` to change this.

    Raises (on entry):
        CircuitOpenError: The circuit is open, or all trial calls are in progress.
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
        """Create a closed circuit.

        `name` names the protected resource in messages, and `counts` returns True for exceptions
        that count as failures.
        """
        for option, value in (
            ("failure_threshold", failure_threshold),
            ("half_open_max_calls", half_open_max_calls),
            ("success_threshold", success_threshold),
        ):
            if value < 1:
                raise ValueError(f"{option} must be at least 1, not {value:g}")
        if reset_timeout < 0:
            raise ValueError(f"reset_timeout must not be negative: {reset_timeout:g}")
        self.name = name
        self._failure_threshold = failure_threshold
        self._reset_timeout = reset_timeout
        self._max_probes = half_open_max_calls
        self._success_threshold = success_threshold
        self._counts = counts
        self._clock = clock
        self._opened = 0  # number of times the circuit opened
        self._refused = 0
        # Incremented with every change of state, so that outcomes of earlier calls are ignored.
        self.turn = 0
        self.healthy = True  # True if the circuit is closed and the last counted call succeeded
        self._failures = 0  # consecutive failures
        self._successes = 0  # successful trial calls
        self._probes = 0  # number of trial calls in progress
        self._until = 0.0
        self._state = CircuitState.CLOSED

    @property
    def state(self) -> CircuitState:
        """Return the current state; an open circuit becomes half-open after its timeout."""
        if self._state is CircuitState.OPEN and self._clock() >= self._until:
            self._enter(CircuitState.HALF_OPEN)
        return self._state

    @property
    def remaining(self) -> float:
        """Return the number of seconds for which the circuit stays open."""
        return self._until - self._clock() if self.state is CircuitState.OPEN else 0.0

    @property
    def metrics(self) -> dict[str, Any]:
        """Return the state, and how many calls were refused and how often the circuit opened."""
        return {
            "state": self.state.value,
            "remaining": self.remaining,
            "failures": self._failures,
            "probes": self._probes,
            "refused": self._refused,
            "opened": self._opened,
        }

    def admit(self) -> "BreakerPermit":
        """Admit one call; its end must be reported to the returned permit.

        Raises:
            CircuitOpenError: The circuit is open, or all trial calls are in progress.
        """
        state = self.state
        if state is CircuitState.HALF_OPEN and self._probes < self._max_probes:
            self._probes += 1
        elif state is not CircuitState.CLOSED:
            self._refused += 1
            raise CircuitOpenError(self.remaining, self.name)
        return BreakerPermit(self, self.turn)

    def reset(self) -> None:
        """Close the circuit and clear the counts."""
        self._refused = self._opened = 0
        self._enter(CircuitState.CLOSED)

    def __enter__(self) -> "CircuitBreaker":
        admission = self.admit()
        _entered.set((*_entered.get(), admission))
        return self

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        stack = _entered.get()
        # A task may enter a breaker more than once; the most recent entry is exited first.
        mine = [index for index, admission in enumerate(stack) if admission.breaker is self]
        if mine:
            _entered.set(stack[: mine[-1]] + stack[mine[-1] + 1 :])
            stack[mine[-1]].ended(exc)
        else:
            # The breaker was entered in another task, so the state at that time is unknown.
            self._ended(self.turn, exc)

    async def __aenter__(self) -> "CircuitBreaker":
        return self.__enter__()

    async def __aexit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        self.__exit__(kind, exc, traceback)

    def _ended(self, turn: int, exc: BaseException | None) -> None:
        if turn != self.turn:
            return
        probing = self._state is CircuitState.HALF_OPEN
        if probing:
            self._probes = max(0, self._probes - 1)
        if exc is not None and not isinstance(exc, Exception):
            return
        if exc is not None and self._counts(exc):
            self._failures += 1
            self.healthy = False
            if probing or self._failures >= self._failure_threshold:
                self._enter(CircuitState.OPEN)
        elif probing:
            self._successes += 1
            if self._successes >= self._success_threshold:
                self._enter(CircuitState.CLOSED)
        else:
            self._failures = 0
            self.healthy = True

    def _enter(self, state: CircuitState) -> None:
        self._state = state
        self.turn += 1
        self.healthy = state is CircuitState.CLOSED
        self._failures = self._successes = self._probes = 0
        self._until = 0.0
        if state is CircuitState.OPEN:
            self._opened += 1
            self._until = self._clock() + self._reset_timeout
            log.warning(
                "%s failed too often; calls are suspended for %g s",
                self.name or "the operation",
                self._reset_timeout,
            )


class BreakerPermit(Struct):
    """Permission for one call. Only the first report of its outcome counts."""

    breaker: CircuitBreaker
    _turn: int
    _over: bool = False

    def ended(self, exc: BaseException | None = None) -> None:
        """Report the end of the call, with its exception if it failed."""
        if not self._over:
            self._over = True
            self.breaker._ended(self._turn, exc)


# Several tasks may use one breaker at the same time; each task finds its own permits here.
_entered: ContextVar[tuple[BreakerPermit, ...]] = ContextVar("_entered", default=())
