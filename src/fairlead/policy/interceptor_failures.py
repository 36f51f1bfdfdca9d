"""Failure policies for interceptors that raise, hang or return an invalid response."""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable
from typing import Final, Literal

from msgspec import Raw, Struct

from ..errors import RpcError
from ..interceptor import (
    Answer,
    Exchange,
    Interceptor,
    InterceptorBase,
    Proceed,
    hooks_of,
    overrides,
)
from ..protocol.json_edit import members_of
from ..protocol.own_errors import own_error
from ..transport import timeouts
from ..wire import Request
from ..wire.error_codes import INTERNAL_ERROR

__all__ = ["FailurePolicy", "with_failure_policy"]

FailurePolicy = Literal["fail_closed", "fail_open", "skip"]

LIMIT: Final = 30.0  # seconds that an interceptor may take, not counting the time inside `proceed`
REST: Final = 60.0  # seconds for which the policy "skip" skips an interceptor that failed

log = logging.getLogger("fairlead.gateway.interceptors")


def with_failure_policy(
    interceptor: Interceptor,
    policy: FailurePolicy = "fail_closed",
    *,
    timeout: float = LIMIT,
    rest: float = REST,
    name: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> Interceptor:
    """Wrap an interceptor in a failure policy.

    * fail_closed: the message is refused.
    * fail_open: the message passes as if the interceptor were absent.
    * skip: like fail_open, and the interceptor is skipped for `rest` seconds.

    `timeout` limits the interceptor's own running time, not counting `proceed`; 0 means unlimited.
    A refusal (`RpcError`) is not a failure, and neither is an exception that `proceed` raises.
    """
    name = name or getattr(interceptor, "__name__", type(interceptor).__name__)
    return _Guard(interceptor, policy, timeout, rest, name, clock)


# Hooks that the guard forwards to its interceptor. Otherwise a guarded `Redact` would not
# redact unknown members of a response.
_PASSED_ON: Final = (
    InterceptorBase.on_malformed,
    InterceptorBase.extra_members,
    InterceptorBase.shown,
    InterceptorBase.views_changed,
    InterceptorBase.access_refused,
    InterceptorBase.close,
)


class _Guard(InterceptorBase):
    def __init__(
        self,
        inner: Interceptor,
        policy: FailurePolicy,
        timeout: float,
        rest: float,
        name: str,
        clock: Callable[[], float],
    ) -> None:
        self._inner = inner
        self._hooks = hooks_of(inner)
        # Only overridden hooks are set, so that `overrides` returns the same for the guard.
        for hook in _PASSED_ON:
            if overrides(self._hooks, hook):
                setattr(self, hook.__name__, getattr(self._hooks, hook.__name__))
        self._policy: FailurePolicy = policy
        self._timeout = timeout
        self._rest = rest
        self._name = name
        self._clock = clock
        # Time until which the interceptor is skipped.
        self._until = float("-inf")

    @property
    def waits(self) -> bool:  # type: ignore[override]
        """True if the interceptor may wait, and therefore may hang."""
        return self._hooks.waits

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if self._clock() < self._until:
            return await proceed(exchange)
        behind = _Behind(exchange, proceed)
        try:
            answer = await self._within_limit(exchange, behind)
            if not _is_sensible(answer, exchange, behind):
                is_json = isinstance(answer, bytes | Raw)
                what = "not a JSON object" if is_json else f"of type {type(answer).__name__}"
                raise _Misbehaviour(f"the response is {what}")
        except RpcError:
            raise
        # User code may raise any exception, including `CancelledError` of its own tasks.
        except BaseException as exc:
            if exc is behind.failure or exc is behind.end or _is_an_end(exc):
                raise
            return await self._failed(exc, exchange, behind)
        return answer if isinstance(exchange.message, Request) else None

    async def _within_limit(self, exchange: Exchange, behind: "_Behind") -> Answer:
        if not self._timeout or not self.waits:
            return await self._inner(exchange, behind)
        limit = timeouts.timeout(self._timeout)
        behind.limit, behind.left = limit, self._timeout
        try:
            async with limit:
                return await self._inner(exchange, behind)
        except TimeoutError:
            if not limit.expired():
                raise
            raise _Misbehaviour(f"timeout after {self._timeout:g} s") from None

    async def _failed(self, exc: BaseException, exchange: Exchange, behind: "_Behind") -> Answer:
        # The exception's text may quote the message, which may contain secrets.
        why = str(exc) if isinstance(exc, _Misbehaviour) else type(exc).__name__
        then = self._consequence()
        log.error("interceptor %s failed on %s (%s): %s", self._name, exchange.method, why, then)
        log.debug("traceback:\n%s", "".join(traceback.format_tb(exc.__traceback__)))
        exchange.note(f"{self._name} failed")
        if self._policy == "fail_closed":
            raise own_error(INTERNAL_ERROR, f"Interceptor {self._name} failed") from None
        if self._policy == "skip":
            self._until = self._clock() + self._rest
        if behind.failure is not None:
            raise behind.failure
        if behind.done:
            return behind.answer
        return await behind.proceed(exchange)

    def _consequence(self) -> str:
        if self._policy == "fail_closed":
            return "the message is refused"
        if self._policy == "fail_open":
            return "the message passes"
        return f"the message passes, and the interceptor is skipped for {self._rest:g} s"


class _Behind(Struct, eq=False):
    """The `proceed` of a guarded interceptor, which records the outcome and pauses the timeout."""

    asked: Exchange
    proceed: Proceed
    limit: asyncio.Timeout | None = None
    left: float = 0.0
    answer: Answer = None
    failure: Exception | None = None
    # the exception outside `Exception`, such as a cancellation, that ended the call
    end: BaseException | None = None
    done: bool = False
    entered: int = 0

    async def __call__(self, exchange: Exchange) -> Answer:
        same_kind = isinstance(exchange, Exchange) and type(exchange.message) is type(
            self.asked.message
        )
        if not same_kind:
            raise _Misbehaviour("proceed was called with a message of another kind")
        self._stop_clock()
        try:
            self.answer, self.failure = await self.proceed(exchange), None
        except Exception as exc:
            self.failure = exc
            raise
        except BaseException as exc:
            self.end = exc
            raise
        finally:
            self._start_clock()
        self.done = True
        return self.answer

    def _stop_clock(self) -> None:
        self.entered += 1
        # With concurrent calls, the clock stops at the first call and continues after the last.
        if self.entered == 1 and self.limit is not None:
            due, now = self.limit.when(), asyncio.get_running_loop().time()
            self.left = 0.0 if due is None else max(0.0, due - now)
            if not self.limit.expired():
                self.limit.reschedule(None)

    def _start_clock(self) -> None:
        self.entered -= 1
        if self.entered == 0 and self.limit is not None and not self.limit.expired():
            self.limit.reschedule(asyncio.get_running_loop().time() + self.left)


class _Misbehaviour(Exception):
    """A failure whose text quotes nothing from the forwarded message, so that it can be logged."""


def _is_an_end(exc: BaseException) -> bool:
    """Return True if the current task is being cancelled; False if the interceptor failed.

    Code that awaits a cancelled task raises `CancelledError` without being cancelled itself. If
    this exception were propagated, the caller would get no response.
    """
    if isinstance(exc, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(exc, KeyboardInterrupt | GeneratorExit)


def _is_sensible(answer: object, exchange: Exchange, behind: _Behind) -> bool:
    if not isinstance(exchange.message, Request):
        return True  # a notification's result is ignored
    if behind.done and answer is behind.answer:
        return True
    return isinstance(answer, bytes | Raw) and members_of(answer) is not None
