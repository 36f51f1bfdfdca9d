"""Interceptors without a task: a request is led through them by hand.

Most of what stands in the way only looks at a message, or changes it, and then waits for nothing
but what is behind it. Such a chain is a coroutine that stops at one place, where the server is to
be asked. So it can be run up to there at once, and on from there when the answer arrives; a task
and a future cost more than all that these interceptors do.

What says `waits = False` of itself may do that. Everything else has a task, as usual. What comes in
two halves needs no coroutine either. And who has a method `passes` can say beforehand that a
request is none of his business.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from itertools import takewhile
from types import CoroutineType
from typing import Any, Protocol, cast

from ..errors import RpcError, TransportError
from ..interceptor import (
    After,
    Answer,
    Exchange,
    Handler,
    Interceptor,
    Outcome,
    TwoHalves,
    chain,
    claims,
)
from ..interceptor.halves import ANSWERS, sensible

__all__ = ["Cancellable", "Chain", "Steps", "lead_back"]

log = logging.getLogger("fairlead.gateway")


class Chain:
    """Interceptors that may be led through, if all of them may at the moment."""

    def __init__(self, interceptors: Sequence[Interceptor], usual: Handler) -> None:
        """`usual` is what comes behind them."""
        self.empty = not interceptors
        self.usual = usual
        # A set of rules waits or not, by what they are; the others never change.
        self._changing = [one for one in interceptors if _changes(one)]
        self._leads = all(_changes(one) or not _waits(one) for one in interceptors)
        self.always_quick = self._leads and not self._changing
        # The first ones may need no coroutine; from the first one on that needs it, all have it.
        halves = list(takewhile(_comes_in_halves, interceptors))
        rest = interceptors[len(halves) :]
        self.first = [cast(TwoHalves, one).before for one in halves]
        self.enter = chain(rest, _Behind) if rest else None
        self.looks = _looks_of(interceptors)
        self._looks_of_rest = _looks_of(rest)

    @property
    def possible(self) -> bool:
        """Whether a request may ever need no task."""
        return self._leads or bool(self.looks)

    @property
    def quick(self) -> bool:
        """Whether a request may be led through at the moment."""
        return self._leads and not any(bool(getattr(one, "waits", True)) for one in self._changing)

    def lead_in(self, exchange: Exchange, afters: list[After]) -> Exchange:
        """Through the first ones; what they want to be told the outcome with goes to `afters`.

        Raises whatever they refuse with, or fail.
        """
        for before in self.first:
            exchange, after = before(exchange)
            if after is not None:
                afters.append(after)
        return exchange

    def passes(self, exchange: Exchange) -> bool:
        """Whether none of them has anything to do with a request, nor with its answer.

        `looks` is empty if that cannot be said.
        """
        return _all_pass(self.looks, exchange)

    def rest_passes(self, exchange: Exchange) -> bool:
        """The same for those behind the first ones, if there are any."""
        if self.enter is None:
            return True
        return _all_pass(self._looks_of_rest, exchange)


class Cancellable(Protocol):
    """Something that nobody may want any more."""

    def cancel(self, reason: str) -> None: ...


class _Behind:
    """What is behind the interceptors: whoever waits for it stops there."""

    __slots__ = ("exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    def __await__(self) -> Generator["_Behind", Answer, Answer]:
        return (yield self)


class Steps:
    """One request that has passed the first interceptors, and its answer on the way back.

    It begins with `enter`, `adopt` or `refuse`. Whoever uses it says what `ask` and `done` do.
    """

    __slots__ = (
        "_afters",
        "_asked",
        "_carried",
        "_chain",
        "_coroutine",
        "_over",
        "_task",
        "_under_way",
    )

    def __init__(self, way: Chain) -> None:
        self._chain = way
        self._afters: list[After] = []  # of the first ones
        self._coroutine: Coroutine[Any, Answer, Answer] | None = None  # of the others
        self._asked: Exchange | None = None  # what the server was asked, as soon as it was
        self._under_way: Cancellable | None = None  # at the server
        self._task: asyncio.Task[None] | None = None
        self._carried = False  # it has begun
        self._over = False

    def ask(self, exchange: Exchange) -> "Cancellable | None":
        """Ask the server, and call `answered` with the outcome; returns what can be given up, or
        None if that needs the usual way."""
        raise NotImplementedError

    def done(self, outcome: Answer | Exception) -> None:
        """Here is the outcome: once, never before whoever began has heard so."""
        raise NotImplementedError

    def enter(self, exchange: Exchange, afters: list[After]) -> None:
        """Begin behind the first ones, and go as far as it goes."""
        self._afters = afters
        assert self._chain.enter is not None
        try:
            entered = self._chain.enter(exchange)
        except Exception as exc:
            self._finish(exc)
            return
        self._coroutine = entered if type(entered) is CoroutineType else _awaited(entered)
        self._step(None)

    def refuse(self, afters: list[After], cause: Exception | asyncio.CancelledError) -> None:
        """Begin with a refusal of one of the first: those before it hear of it."""
        self._afters = afters
        self._finish(_fair(cause))

    def adopt(self, exchange: Exchange, afters: list[After]) -> None:
        """Begin behind the first ones, on the usual way."""
        self._afters = afters
        self._asked = exchange
        self._go_on(_Behind(exchange))

    def cancel(self, reason: str) -> None:
        """Nobody waits for the answer any more: the server is told, and all in between."""
        if self._over:
            return
        self._over = True
        if self._task is not None:
            self._task.cancel(reason)
            return
        under_way, self._under_way = self._under_way, None  # it leads back here
        if under_way is not None:
            under_way.cancel(reason)
        self._break_off(asyncio.CancelledError(reason))

    def _break_off(self, cause: asyncio.CancelledError) -> None:
        """All in between hear of it; whatever they make of it, nobody is there to hear that."""
        outcome: Outcome = cause
        if self._coroutine is not None:
            try:
                self._coroutine.throw(cause)
                self._coroutine.close()  # it would wait for something, but nobody does so for it
            except StopIteration as stop:
                outcome = stop.value
            except (asyncio.CancelledError, RpcError) as exc:
                outcome = exc
            except Exception as exc:
                log.exception("an interceptor failed when its request was cancelled")
                outcome = exc
        lead_back(self._afters, outcome)

    def _step(self, outcome: Answer | Exception) -> None:
        coroutine = self._coroutine
        assert coroutine is not None
        try:
            if isinstance(outcome, Exception):
                wanted = coroutine.throw(outcome)
            else:
                wanted = coroutine.send(outcome)
        except StopIteration as stop:
            self._finish(_fair(stop.value))
        except (Exception, asyncio.CancelledError) as exc:
            self._finish(_fair(exc))
        else:
            if type(wanted) is _Behind:
                self._asked = wanted.exchange
                self._under_way = self.ask(wanted.exchange)
                if self._under_way is not None:
                    return
            self._go_on(wanted)  # or it waits for something after all

    def answered(self, outcome: Answer | Exception) -> None:
        """The server has answered, or will not."""
        if self._over:
            return
        if isinstance(outcome, TransportError) and not outcome.delivered:
            assert self._asked is not None
            self._go_on(_Behind(self._asked))  # the server comes back, perhaps
        elif self._coroutine is None:
            self._finish(outcome)
        else:
            self._step(outcome)

    def _go_on(self, wanted: Any) -> None:
        """Have a task do the rest, from where `wanted` is waited for."""
        self._task = asyncio.get_running_loop().create_task(self._carry(wanted))
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and not self._carried:  # before it had begun
            try:
                task.result()
            except asyncio.CancelledError as cause:  # with the reason that was given
                self._break_off(cause)

    async def _carry(self, wanted: Any) -> None:
        self._carried = True
        outcome: Answer | Exception
        try:
            outcome = _fair(await self._rest(wanted))
        except Exception as exc:
            outcome = exc
        except BaseException as exc:
            task = self._task
            if not isinstance(exc, asyncio.CancelledError) or task is None or task.cancelling():
                lead_back(self._afters, exc)
                raise
            outcome = _fair(exc)
        self._task = None
        try:
            self._finish(outcome)
        finally:
            del outcome  # of an error, its traceback leads back here

    async def _rest(self, wanted: Any) -> Answer:
        coroutine = self._coroutine
        if coroutine is None:
            return await self._chain.usual(wanted.exchange)
        try:
            while True:
                try:
                    if type(wanted) is _Behind:
                        got = await self._chain.usual(wanted.exchange)
                    else:
                        got = await _Waiting(wanted)
                except BaseException as exc:
                    wanted = coroutine.throw(exc)
                else:
                    wanted = coroutine.send(got)
        except StopIteration as stop:
            answer: Answer = stop.value
            return answer

    def _finish(self, outcome: Answer | Exception) -> None:
        if self._over:  # cancelled, and somebody made something else of it: nobody hears that
            lead_back(self._afters, outcome)
            return
        self._over = True
        self._under_way = None  # it leads back here: the collector would have to find that out
        outcome = lead_back(self._afters, outcome)
        if self._asked is not None:
            self.done(outcome)
        else:  # nobody was asked, so whoever began has not heard yet that it has begun
            asyncio.get_running_loop().call_soon(self.done, outcome)


def lead_back(afters: list[After], outcome: Outcome) -> Answer | Exception:
    """An answer passes those that have no coroutine, the last one first.

    Only whoever was cancelled hears of that in the end.
    """
    as_it_is = sensible if isinstance(outcome, asyncio.CancelledError) else _fair
    while afters:
        try:
            outcome = afters.pop()(outcome)
        except (Exception, asyncio.CancelledError) as exc:
            outcome = exc
        if type(outcome) not in ANSWERS:
            outcome = as_it_is(outcome)
    return outcome  # type: ignore[return-value]  # a cast is a call


class _Waiting:
    """Something that a coroutine waits for, which a task has not begun but goes on with."""

    __slots__ = ("_wanted",)

    def __init__(self, wanted: Any) -> None:
        self._wanted = wanted

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self._wanted)


async def _awaited(entered: Awaitable[Answer]) -> Answer:
    """Who returns what is behind him instead of waiting for it has no coroutine."""
    return await entered


def _fair(outcome: object) -> Answer | Exception:
    """The outcome of what nobody has cancelled; whoever says so nevertheless has failed."""
    if type(outcome) not in ANSWERS:
        outcome = sensible(outcome)
        if isinstance(outcome, asyncio.CancelledError):
            failed = RuntimeError("what an interceptor waited for was cancelled")
            failed.__cause__, outcome = outcome, failed
    return cast(Answer | Exception, outcome)


def _waits(interceptor: Interceptor) -> bool:
    return not claims(interceptor, "waits") or bool(getattr(interceptor, "waits", True))


def _changes(interceptor: Interceptor) -> bool:
    """Whether it waits is for it to say each time."""
    return claims(interceptor, "waits") and isinstance(
        getattr(type(interceptor), "waits", None), property
    )


def _comes_in_halves(interceptor: Interceptor) -> bool:
    """Whether calling its halves is the same as calling it."""
    return type(interceptor).__call__ is TwoHalves.__call__


def _looks_of(interceptors: Sequence[Interceptor]) -> list[Callable[[Exchange], bool]]:
    """What tells whether a request is none of their business, if all of them can tell."""
    looks: list[Any] = [
        getattr(one, "passes", None) if claims(one, "passes", "before") else None
        for one in interceptors
    ]
    return [] if None in looks else looks


def _all_pass(looks: Sequence[Callable[[Exchange], bool]], exchange: Exchange) -> bool:
    try:
        for look in looks:
            if not look(exchange):
                return False
        return bool(looks)
    except RpcError:
        return False  # it is going to say so again
    except Exception:
        log.exception("an interceptor could not say whether it passes %s", exchange.method)
        return False
