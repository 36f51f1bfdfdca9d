"""Interceptors without a task: a request is led through them by hand.

Most of what stands in the way only looks at a message, or changes it, and then waits for nothing
but what is behind it. Such a chain is a coroutine that stops at one place, where the server is to
be asked. So it can be run up to there at once, and on from there when the answer arrives; a task
and a future cost more than all that these interceptors do.

What says `waits = False` of itself may do that. Everything else has a task, as usual. And who has
a method `passes` can say beforehand that a request is none of his business.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from ..errors import RpcError, TransportError
from ..interceptor import Answer, Exchange, Handler, Interceptor, chain

__all__ = ["Chain", "Steps"]

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
        self.enter = chain(interceptors, _Behind)
        looks: list[Any] = [getattr(one, "passes", None) for one in interceptors]
        self._looks: list[Callable[[Exchange], bool]] = [] if None in looks else looks

    @property
    def possible(self) -> bool:
        """Whether a request may ever need no task."""
        return self._leads or bool(self._looks)

    @property
    def quick(self) -> bool:
        """Whether a request may be led through now."""
        return self._leads and not any(_waits(one) for one in self._changing)

    def passes(self, exchange: Exchange) -> bool:
        """Whether none of them has anything to do with a request, nor with its answer."""
        return bool(self._looks) and all(look(exchange) for look in self._looks)


class _Behind:
    """What is behind the interceptors: whoever waits for it stops there."""

    __slots__ = ("exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    def __await__(self) -> Generator["_Behind", Answer, Answer]:
        return (yield self)


class Steps:
    """One request on its way through interceptors, and its answer on the way back.

    Whoever uses it says what `ask` and `done` do.
    """

    __slots__ = ("_asked", "_chain", "_coroutine", "_give_up", "_over", "_task")

    def __init__(self, way: Chain) -> None:
        self._chain = way
        self._coroutine: Coroutine[Any, Answer, Answer]
        self._asked: _Behind | None = None  # what the server was asked, as soon as it was
        self._give_up: Callable[[str], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._over = False

    def ask(self, exchange: Exchange) -> Callable[[str], None] | None:
        """Ask the server, and call `answered` with the outcome; returns what gives up, or None if
        that needs the usual way."""
        raise NotImplementedError

    def done(self, outcome: Answer | Exception) -> None:
        """Here is the outcome: once, never before `begin` has returned."""
        raise NotImplementedError

    def begin(self, exchange: Exchange) -> None:
        """Go as far as it goes."""
        self._coroutine = self._chain.enter(exchange)  # type: ignore[assignment]
        self._step(None)

    def cancel(self, reason: str) -> None:
        """Nobody waits for the answer any more: the server is told, and all in between."""
        if self._over:
            return
        self._over = True
        if self._task is not None:
            self._task.cancel(reason)
            return
        if self._give_up is not None:
            self._give_up(reason)
        try:
            self._coroutine.throw(asyncio.CancelledError(reason))
        except (StopIteration, asyncio.CancelledError, RpcError):
            pass  # whatever the outcome is, nobody is there to hear it
        except Exception:
            log.exception("an interceptor failed when its request was cancelled")
        else:
            self._coroutine.close()

    def _step(self, outcome: Answer | Exception) -> None:
        try:
            if isinstance(outcome, Exception):
                wanted = self._coroutine.throw(outcome)
            else:
                wanted = self._coroutine.send(outcome)
        except StopIteration as stop:
            self._finish(stop.value)
        except Exception as exc:
            self._finish(exc)
        else:
            if type(wanted) is _Behind:
                self._pass_on(wanted)
            else:  # it waits for something after all
                self._go_on(wanted)

    def _pass_on(self, behind: _Behind) -> None:
        self._asked = behind
        self._give_up = self.ask(behind.exchange)
        if self._give_up is None:
            self._go_on(behind)

    def answered(self, outcome: Answer | Exception) -> None:
        """The server has answered, or will not."""
        if self._over:
            return
        if isinstance(outcome, TransportError) and not outcome.delivered:
            self._go_on(self._asked)  # the server comes back, perhaps
        else:
            self._step(outcome)

    def _go_on(self, wanted: Any) -> None:
        """Have a task do the rest, from where `wanted` is waited for."""
        self._task = asyncio.get_running_loop().create_task(self._carry(wanted))

    async def _carry(self, wanted: Any) -> None:
        coroutine = self._coroutine
        outcome: Answer | Exception
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
            outcome = stop.value
        except Exception as exc:
            outcome = exc
        self._task = None
        self._finish(outcome)

    def _finish(self, outcome: Answer | Exception) -> None:
        if self._over:
            return
        self._over = True
        if self._asked is not None:
            self.done(outcome)
        else:  # nobody was asked, so whoever began has not heard yet that it has begun
            asyncio.get_running_loop().call_soon(self.done, outcome)


class _Waiting:
    """Something that a coroutine waits for, which a task has not begun but goes on with."""

    __slots__ = ("_wanted",)

    def __init__(self, wanted: Any) -> None:
        self._wanted = wanted

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self._wanted)


def _waits(interceptor: Interceptor) -> bool:
    return bool(getattr(interceptor, "waits", True))


def _changes(interceptor: Interceptor) -> bool:
    """Whether it waits is for it to say each time."""
    return isinstance(getattr(type(interceptor), "waits", None), property)
