"""Action that injects faults, to test how clients and servers handle them."""

import asyncio
import random
from typing import Literal

from msgspec import Raw

from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...transport.background_tasks import BackgroundTasks
from ...wire import Request
from ...wire.error_codes import INTERNAL_ERROR
from ..edit_message import with_whole_params
from .block import blocked_error

__all__ = ["Fault"]

FaultKind = Literal["drop", "duplicate", "corrupt", "cut", "error", "slow"]

_CORRUPT = Raw(b'{"corrupt":true}')


class Fault(InterceptorBase):
    """Action that injects one kind of fault with a probability of `chance`.

    * drop: a request is never answered, a notification is not forwarded.
    * duplicate: the message is forwarded twice.
    * corrupt: a request's result, or a notification's params, are replaced with an invalid value.
    * cut: the connection to the sender of the message is closed.
    * error: the request is refused with an error.
    * slow: the response is delayed by `seconds`.
    """

    def __init__(
        self, kind: FaultKind, chance: float = 1.0, *, seconds: float = 5.0, seed: int | None = None
    ) -> None:
        if not 0 <= chance <= 1:
            raise ValueError(f"`chance` must be between 0 and 1, not {chance:g}")
        if seconds < 0:
            raise ValueError(f"`seconds` must be at least 0, not {seconds:g}")
        self._kind: FaultKind = kind
        self._chance = chance
        self._seconds = seconds
        # A separate random generator is used, so that `seed` makes a run reproducible.
        self._random = random.Random(seed)
        self._ending = BackgroundTasks()

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if self._random.random() >= self._chance:
            return await proceed(exchange)
        note = exchange.drop if self._kind == "drop" else exchange.note
        note(f"fault: {self._kind}")
        asked = isinstance(exchange.message, Request)
        match self._kind:
            case "drop":
                if asked:
                    await asyncio.Event().wait()  # waits until the caller times out or cancels
                return None
            case "duplicate":
                await proceed(exchange)
                return await proceed(exchange)
            case "corrupt":
                if not asked:
                    return await proceed(with_whole_params(exchange, _CORRUPT))
                await proceed(exchange)
                return _CORRUPT
            case "cut":
                self._cut(exchange)
            case "slow":
                answer = await proceed(exchange)
                await asyncio.sleep(self._seconds)
                return answer
        raise blocked_error(exchange, "Injected fault", INTERNAL_ERROR)

    def _cut(self, exchange: Exchange) -> None:
        """Close the connection to the sender in a background task.

        Over HTTP, each message has its own connection, so the error response is the only effect.
        """
        self._ending.start(exchange.edge.close())
