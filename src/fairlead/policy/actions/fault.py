"""Trouble on purpose: to see what a client or a server makes of it."""

import asyncio
import random
from typing import Literal

from msgspec import Raw

from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...wire import Request
from ...wire.error_codes import INTERNAL_ERROR
from ..edit_message import with_whole_params
from .block import blocked_error

__all__ = ["Fault"]

FaultKind = Literal["drop", "duplicate", "corrupt", "cut", "error", "slow"]

_CORRUPT = Raw(b'{"corrupt":true}')


class Fault(InterceptorBase):
    """Something goes wrong, always or now and then.

    drop: never answered. duplicate: passed on twice. corrupt: a result, or params of a
    notification, that are none. cut: the connection to whoever asked is lost. error: a refusal.
    slow: the answer waits.
    """

    def __init__(
        self, kind: FaultKind, chance: float = 1.0, *, seconds: float = 5.0, seed: int | None = None
    ) -> None:
        if not 0 <= chance <= 1:
            raise ValueError("`chance` is between 0 and 1")
        if seconds < 0:
            raise ValueError("`seconds` is not below 0")
        self._kind: FaultKind = kind
        self._chance = chance
        self._seconds = seconds
        self._random = random.Random(seed)
        self._ending: set[asyncio.Task[None]] = set()

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if self._random.random() >= self._chance:
            return await proceed(exchange)
        exchange.note(f"fault: {self._kind}")
        asked = isinstance(exchange.message, Request)
        match self._kind:
            case "drop":
                if asked:
                    await asyncio.Event().wait()  # until whoever waits gives up
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
        raise blocked_error(exchange, "A fault on purpose", INTERNAL_ERROR)

    def _cut(self, exchange: Exchange) -> None:
        """Where each message has a connection of its own, the refusal is all there can be."""
        task = asyncio.get_running_loop().create_task(exchange.edge.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
