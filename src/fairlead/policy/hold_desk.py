"""Messages that wait for somebody's word: listed, then let go, changed or refused."""

import asyncio
import logging
import time
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from ..errors import ConfigError
from ..limits import HELD_MESSAGES
from ..protocol.envelope import Direction
from ..redaction.redact_messages import Redactor

__all__ = ["HeldMessage", "HoldDecision", "HoldDesk", "HoldOutcome", "NotHeld"]

MAX_HELD: Final = HELD_MESSAGES.value
SHOWN: Final = 64 << 10  # bytes of a message; of a longer one only its size is shown

log = logging.getLogger("fairlead.gateway")

HoldOutcome: TypeAlias = Literal["resume", "block"]
HoldPhase: TypeAlias = Literal[
    "request", "answer", "error", "notification"
]  # "error": an answer too


class NotHeld(ConfigError):
    """Nothing waits under that number."""


class HeldMessage(Struct, omit_defaults=True, kw_only=True):
    """One message at the desk, as people see it; secrets are taken out."""

    id: int
    at: float  # seconds since the epoch
    until: float  # when it is decided without anybody
    otherwise: HoldOutcome  # and how
    phase: HoldPhase
    dir: Direction
    method: str
    target: str | None = None
    principal: str | None = None
    reason: str | None = None
    message: Raw | UnsetType = UNSET  # params, the result, or the error
    size: int = 0
    question: bool = False  # whether it may pass at all: there is nothing to change


class HoldDecision(Struct, frozen=True):
    """What shall be done with it."""

    action: Literal["resume", "change", "block"]
    reason: str = ""
    params: Raw | None = None  # instead of those that it has
    result: Raw | None = None  # instead of the answer, or of asking at all


class HoldDesk:
    """Where messages are held."""

    def __init__(
        self,
        *,
        limit: float = 60.0,
        otherwise: HoldOutcome = "block",
        max_held: int = MAX_HELD,
        redactor: Redactor | None = None,
    ) -> None:
        """After `limit` seconds, `otherwise` is done."""
        if limit <= 0:
            raise ValueError(f"a time limit is above 0: {limit:g}")
        self.limit = limit
        self.otherwise: HoldOutcome = otherwise
        self._max_held = max_held
        self._redactor = redactor or Redactor()
        self._held: dict[int, tuple[HeldMessage, asyncio.Future[HoldDecision]]] = {}
        self._next = 1
        self._news: set[asyncio.Future[None]] = set()

    async def hold(
        self,
        phase: HoldPhase,
        direction: Direction,
        method: str,
        *,
        target: str | None = None,
        message: Raw | bytes | None = None,
        principal: str | None = None,
        reason: str | None = None,
        limit: float | None = None,
        otherwise: HoldOutcome | None = None,
        question: bool = False,
    ) -> HoldDecision:
        """Wait for a verdict. Who gives up waiting takes the message off the desk.

        A `question` is resumed or blocked; it cannot be changed.
        """
        seconds, fallback = limit or self.limit, otherwise or self.otherwise
        if len(self._held) >= self._max_held:
            HELD_MESSAGES.hit()
            return HoldDecision("block", "too many messages are held already")
        now, raw = time.time(), b"" if message is None else bytes(message)
        clean = self._redactor
        held = HeldMessage(
            id=self._next,
            at=now,
            until=now + seconds,
            otherwise=fallback,
            phase=phase,
            dir=direction,
            method=method,
            target=None if target is None else clean.text(target[:SHOWN]),
            principal=principal,
            reason=None if reason is None else clean.text(reason),
            message=Raw(clean.message(raw)) if 0 < len(raw) <= SHOWN else UNSET,
            size=len(raw),
            question=question,
        )
        self._next += 1
        decided: asyncio.Future[HoldDecision] = asyncio.get_running_loop().create_future()
        self._held[held.id] = held, decided
        self._tell()
        try:
            async with asyncio.timeout(seconds):
                return await decided
        except TimeoutError:
            log.warning("%s was held for %g s: %s", method, seconds, fallback)
            return HoldDecision(fallback, f"nobody decided within {seconds:g} s")
        finally:
            del self._held[held.id]

    def list(self) -> "list[HeldMessage]":
        """What waits, the oldest first."""
        return [held for held, decided in self._held.values() if not decided.done()]

    async def wait(self) -> HeldMessage:
        """The oldest that waits, as soon as there is one."""
        while not (waiting := self.list()):
            news = asyncio.get_running_loop().create_future()
            self._news.add(news)
            try:
                await news
            finally:
                self._news.discard(news)
        return waiting[0]

    def resume(self, number: int) -> None:
        """Let it go as it is. Raises: NotHeld: it is not here (any more)."""
        self._decide(number, HoldDecision("resume"))

    def change(self, number: int, *, params: Any = None, result: Any = None) -> None:
        """Let it go with other params, or have the asker get another result.

        Both are JSON, as `Raw` bytes or as objects.

        Raises:
            NotHeld: it is not here (any more).
            ConfigError: it cannot be changed like that.
        """
        held = self._get(number)[0]
        if (params is None) == (result is None):
            raise ConfigError("either `params` or `result` is given")
        if held.question:
            raise ConfigError(f"{number} is a question: resume it, or block it")
        if params is not None and held.phase in ("answer", "error"):
            raise ConfigError(f"{number} is an answer: it has a `result`, and no params any more")
        if result is not None and held.phase == "notification":
            raise ConfigError(f"{number} is a notification, which has no result")
        new = _as_raw(params if result is None else result)
        verdict = (
            HoldDecision("change", params=new)
            if result is None
            else HoldDecision("change", result=new)
        )
        self._decide(number, verdict)

    def block(self, number: int, reason: str = "") -> None:
        """Refuse it. Raises: NotHeld: it is not here (any more)."""
        self._decide(number, HoldDecision("block", reason or "refused by whoever watches"))

    def block_all(self, reason: str) -> None:
        """Refuse everything that is held: nobody is going to decide any more."""
        for _, decided in self._held.values():
            if not decided.done():
                decided.set_result(HoldDecision("block", reason))

    def _get(self, number: int) -> tuple[HeldMessage, "asyncio.Future[HoldDecision]"]:
        found = self._held.get(number)
        if found is None or found[1].done():
            raise NotHeld(f"nothing is held under {number}: it was decided, or has gone")
        return found

    def _decide(self, number: int, verdict: HoldDecision) -> None:
        self._get(number)[1].set_result(verdict)

    def _tell(self) -> None:
        for news in self._news:
            if not news.done():
                news.set_result(None)


def _as_raw(value: Any) -> Raw:
    from ..wire import to_json

    raw = value if isinstance(value, Raw) else Raw(to_json(value))
    if not bytes(raw).lstrip().startswith(b"{"):
        raise ConfigError("params and results are JSON objects")
    return raw
