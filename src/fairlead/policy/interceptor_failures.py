"""What becomes of a message when an interceptor breaks, hangs or answers nonsense."""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable
from typing import Final, Literal

from msgspec import Raw

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
from ..wire import Request
from ..wire.error_codes import INTERNAL_ERROR

__all__ = ["FailurePolicy", "with_failure_policy"]

FailurePolicy = Literal["fail_closed", "fail_open", "skip"]

LIMIT: Final = 30.0  # seconds that an interceptor may take for itself
REST: Final = 60.0  # seconds for which one that failed is left out, with "skip"

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
    """The interceptor, with a rule for the case that it fails.

    fail_closed: the message is refused. fail_open: it passes, as if nobody had looked. skip: the
    same, and the interceptor is left out for `rest` seconds. `timeout` is the time that it may
    take for itself; what comes behind it does not count. 0 is no limit.

    A refusal (`RpcError`) is no failure, and neither is what fails behind it.
    """
    return _Guard(interceptor, policy, timeout, rest, name or _name_of(interceptor), clock)


# What an interceptor does besides handling messages; without them, a secret in a member beside a
# result would pass a guarded `Redact`.
_PASSED_ON: Final = (
    InterceptorBase.on_malformed,
    InterceptorBase.extra_members,
    InterceptorBase.shown,
    InterceptorBase.views_changed,
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
        for hook in _PASSED_ON:
            if overrides(self._hooks, hook):
                setattr(self, hook.__name__, getattr(self._hooks, hook.__name__))
        self._policy: FailurePolicy = policy
        self._timeout = timeout
        self._rest = rest
        self._name = name
        self._clock = clock
        self._until = float("-inf")  # left out until then

    @property
    def waits(self) -> bool:  # type: ignore[override]
        """What never waits cannot hang either."""
        return self._hooks.waits

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if self._clock() < self._until:
            return await proceed(exchange)
        behind = _Behind(exchange, proceed)
        try:
            answer = await self._within_limit(exchange, behind)
            if not _is_sensible(answer, exchange, behind):
                raise _Nonsense(f"the answer is {_shown(answer)}")
        except RpcError:
            raise
        except BaseException as exc:  # somebody else's code: anything may happen in it
            if exc is behind.failure or exc is behind.end or _is_an_end(exc):
                raise
            return await self._failed(exc, exchange, behind)
        return answer if isinstance(exchange.message, Request) else None

    async def _within_limit(self, exchange: Exchange, behind: "_Behind") -> Answer:
        if not self._timeout or not self.waits:
            return await self._inner(exchange, behind)
        limit = asyncio.timeout(self._timeout)
        behind.limit, behind.left = limit, self._timeout
        try:
            async with limit:
                return await self._inner(exchange, behind)
        except TimeoutError:
            if not limit.expired():
                raise
            raise _Hung(f"it took more than {self._timeout:g} s") from None

    async def _failed(self, exc: BaseException, exchange: Exchange, behind: "_Behind") -> Answer:
        # Its own words may be about the message, which has secrets.
        why = str(exc) if isinstance(exc, _Nonsense | _Hung) else type(exc).__name__
        log.error(
            "the interceptor %s failed on %s (%s): %s",
            self._name,
            exchange.method,
            why,
            _fate(self),
        )
        log.debug("where it failed:\n%s", "".join(traceback.format_tb(exc.__traceback__)))
        exchange.note(f"{self._name} failed")
        if self._policy == "fail_closed":
            raise own_error(INTERNAL_ERROR, f"{self._name} failed, so nothing passes") from None
        if self._policy == "skip":
            self._until = self._clock() + self._rest
        if behind.failure is not None:
            raise behind.failure
        if behind.done:
            return behind.answer
        return await behind.proceed(exchange)


class _Behind:
    """What comes behind an interceptor: how it went, and how long it took."""

    __slots__ = (
        *("_asked", "_entered", "answer", "done"),
        *("end", "failure", "left", "limit", "proceed"),
    )

    def __init__(self, asked: Exchange, proceed: Proceed) -> None:
        self._asked = asked
        self._entered = 0
        self.proceed = proceed
        self.limit: asyncio.Timeout | None = None
        self.left = 0.0
        self.answer: Answer = None
        self.failure: Exception | None = None
        self.end: BaseException | None = None  # it was not let finish
        self.done = False

    async def __call__(self, exchange: Exchange) -> Answer:
        same_kind = isinstance(exchange, Exchange) and type(exchange.message) is type(
            self._asked.message
        )
        if not same_kind:
            raise _Nonsense("it passed on something that is no such message")
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
        self._entered += 1
        if self._entered == 1 and self.limit is not None:
            due, now = self.limit.when(), asyncio.get_running_loop().time()
            self.left = 0.0 if due is None else max(0.0, due - now)
            if not self.limit.expired():
                self.limit.reschedule(None)

    def _start_clock(self) -> None:
        self._entered -= 1
        if self._entered == 0 and self.limit is not None and not self.limit.expired():
            self.limit.reschedule(asyncio.get_running_loop().time() + self.left)


class _Nonsense(Exception):
    pass


class _Hung(Exception):
    pass


def _is_an_end(exc: BaseException) -> bool:
    """Whether somebody wants it to end, rather than that it failed.

    Code may well raise a cancellation that nobody asked for: it awaited something that was
    cancelled. Whoever waits for the answer would wait forever then.
    """
    if isinstance(exc, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(exc, KeyboardInterrupt | GeneratorExit)


def _is_sensible(answer: object, exchange: Exchange, behind: _Behind) -> bool:
    if not isinstance(exchange.message, Request):
        return True  # nobody reads it
    if behind.done and answer is behind.answer:
        return True
    return isinstance(answer, bytes | Raw) and members_of(answer) is not None


def _shown(answer: object) -> str:
    return (
        "no JSON object" if isinstance(answer, bytes | Raw) else f"of type {type(answer).__name__}"
    )


def _fate(guard: _Guard) -> str:
    if guard._policy == "fail_closed":
        return "the message is refused"
    rest = f", and it is left out for {guard._rest:g} s" if guard._policy == "skip" else ""
    return f"the message passes{rest}"


def _name_of(interceptor: Interceptor) -> str:
    return getattr(interceptor, "__name__", type(interceptor).__name__)
