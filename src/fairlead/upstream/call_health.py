"""Counts, latency and a circuit breaker for the calls of clients to one server."""

import asyncio
import time
from types import TracebackType

from ..errors import (
    ChannelClosed,
    ConnectFailed,
    HttpError,
    LocalResourceError,
    RequestTimeout,
    ServerBusy,
    TransportError,
)
from ..interceptor.circuit_breaker import BreakerPermit, CircuitBreaker
from .startup_wait import StillStarting

__all__ = ["CallHealth"]

# Statuses with which a server rejects the request of one client. If they counted as failures,
# that client could open the circuit breaker for all others.
_REJECTED = frozenset({400, 405, 406, 411, 413, 414, 415, 417, 422, 431})


class CallHealth:
    """Call statistics of a server, and a circuit breaker that rejects calls after many failures."""

    def __init__(
        self, name: str, *, is_process: bool, failure_threshold: int, reset_timeout: float
    ) -> None:
        self.breaker = CircuitBreaker(
            failure_threshold=failure_threshold,
            reset_timeout=reset_timeout,
            name=name,
            counts=_is_failure,
        )
        self.calls = 0
        self.errors = 0
        self.latency: float | None = None  # seconds, a moving average of recent calls
        self.is_process = is_process

    def call(self) -> "_Call":
        """Return a context manager around one call, which counts the outcome on exit.

        Raises:
            CircuitOpenError: Too many calls have failed recently.
        """
        breaker = self.breaker
        # A healthy breaker admits every call, so `admit` need not be called.
        permit = BreakerPermit(breaker, breaker.turn) if breaker.healthy else breaker.admit()
        self.calls += 1
        return _Call(self, permit)


class _Call:
    """Context manager around one call, which counts the outcome on exit."""

    __slots__ = ("_began", "_health", "_permit")

    def __init__(self, health: CallHealth, permit: BreakerPermit) -> None:
        self._health = health
        self._permit = permit
        self._began = time.monotonic()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        health = self._health
        took = time.monotonic() - self._began
        average = health.latency
        health.latency = took if average is None else 0.9 * average + 0.1 * took
        if error is None:
            if not health.breaker.healthy:
                self._permit.ended()
            return
        # A cancellation is not an `Exception` and does not count as an error.
        health.errors += isinstance(error, Exception)
        # The exit or hang of a process counts against its connection key: a client that crashes
        # its own process must not block other clients. The breaker ignores cancellations.
        lost = isinstance(error, ChannelClosed | ConnectFailed | RequestTimeout)
        self._permit.ended(asyncio.CancelledError() if lost and health.is_process else error)


def _is_failure(exc: BaseException) -> bool:
    """Return True for errors that count against a server, not for rejections or slow starts."""
    if isinstance(exc, HttpError) and exc.status in _REJECTED:
        return False
    return isinstance(exc, TransportError) and not isinstance(
        exc, StillStarting | ServerBusy | LocalResourceError
    )
