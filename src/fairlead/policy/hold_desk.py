"""Hold desk: keeps messages until an operator resumes, changes or blocks them."""

import asyncio
import logging
import time
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from ..errors import ConfigError
from ..interceptor import Answer, Exchange
from ..limits import HELD_MESSAGES
from ..observe.log_filter import follow_secrets
from ..protocol.caller import principal_name
from ..protocol.envelope import Direction
from ..redaction.redact_messages import Redactor
from ..transport import timeouts
from ..wire import to_json

__all__ = ["HeldMessage", "HoldDecision", "HoldDesk", "HoldOutcome", "NotHeld"]

MAX_HELD: Final = HELD_MESSAGES.value
SHOWN: Final = 64 << 10  # in bytes; for a longer message, operators see only its size

log = logging.getLogger("fairlead.gateway")

HoldOutcome: TypeAlias = Literal["resume", "block"]
HoldPhase: TypeAlias = Literal[
    "request", "answer", "error", "notification"
]  # "answer" is a result; "error" is a response with an error


class NotHeld(ConfigError):
    """No message is held under this id."""


class HeldMessage(Struct, omit_defaults=True, kw_only=True):
    """A held message as shown to operators, without secrets."""

    id: int
    at: float  # seconds since the epoch
    until: float  # time in seconds since the epoch at which `otherwise` applies
    otherwise: HoldOutcome  # the outcome if no operator decides in time
    phase: HoldPhase
    dir: Direction
    method: str
    target: str | None = None
    principal: str | None = None
    reason: str | None = None
    message: Raw | UnsetType = UNSET  # the params, the result or the error, depending on the phase
    size: int = 0
    question: bool = False  # True if the message can only be resumed or blocked, not changed


class HoldDecision(Struct, frozen=True):
    """A decision about a held message, by an operator or because the time limit has passed."""

    action: Literal["resume", "change", "block"]
    reason: str = ""
    params: Raw | None = None  # new params of the message
    result: Raw | None = None  # new response; a request that has one is not forwarded


class HoldDesk:
    """Held messages and the decisions about them."""

    def __init__(
        self,
        *,
        limit: float = 60.0,
        otherwise: HoldOutcome = "block",
        max_held: int = MAX_HELD,
        redactor: Redactor | None = None,
    ) -> None:
        """Set the time limit in seconds, and the outcome if no decision is made within it.

        Raises:
            ValueError: `limit` is not greater than 0.
        """
        if limit <= 0:
            raise ValueError(f"`limit` must be greater than 0, not {limit:g}")
        self.limit = limit
        self.otherwise: HoldOutcome = otherwise
        self._max_held = max_held
        self._redactor = redactor or follow_secrets(Redactor())
        self._held: dict[int, tuple[HeldMessage, asyncio.Future[HoldDecision]]] = {}
        self._next = 1
        self._news = asyncio.Event()

    async def hold(
        self,
        phase: HoldPhase,
        exchange: Exchange,
        message: Answer | UnsetType,
        *,
        reason: str | None = None,
        limit: float | None = None,
        otherwise: HoldOutcome | None = None,
        question: bool = False,
    ) -> HoldDecision:
        """Hold a message until it is decided; cancelling the call removes it from the desk.

        `message` contains the params, the result or the error, which operators see. A `question`
        can be resumed or blocked, but not changed.
        """
        seconds, fallback = limit or self.limit, otherwise or self.otherwise
        if len(self._held) >= self._max_held:
            HELD_MESSAGES.hit()
            return HoldDecision("block", "too many messages are held")
        now, clean = time.time(), self._redactor
        raw = b"" if message is None or isinstance(message, UnsetType) else bytes(message)
        method, target = exchange.method, exchange.target
        held = HeldMessage(
            id=self._next,
            at=now,
            until=now + seconds,
            otherwise=fallback,
            phase=phase,
            dir=exchange.direction,
            method=method,
            # Truncated only after redaction, because half of a secret would not be recognised.
            target=None if target is None else clean.text(target)[:SHOWN],
            principal=principal_name(exchange.caller.principal),
            reason=None if reason is None else clean.text(reason),
            message=Raw(clean.message(raw)) if 0 < len(raw) <= SHOWN else UNSET,
            size=len(raw),
            question=question,
        )
        self._next += 1
        decided: asyncio.Future[HoldDecision] = asyncio.get_running_loop().create_future()
        self._held[held.id] = held, decided
        self._news.set()
        try:
            async with timeouts.timeout(seconds):
                return await decided
        except TimeoutError:
            log.warning("no decision about %s within %g s: %s", method, seconds, fallback)
            return HoldDecision(fallback, f"no decision within {seconds:g} s")
        finally:
            del self._held[held.id]

    def list(self) -> "list[HeldMessage]":
        """Return the held messages, oldest first."""
        return [held for held, decided in self._held.values() if not decided.done()]

    async def wait(self) -> HeldMessage:
        """Wait until a message is held, and return the oldest."""
        while not (waiting := self.list()):
            self._news.clear()
            await self._news.wait()
        return waiting[0]

    def resume(self, number: int) -> None:
        """Forward a message unchanged.

        Raises:
            NotHeld: The message is not held.
        """
        self._decide(number, HoldDecision("resume"))

    def change(self, number: int, *, params: Any = None, result: Any = None) -> None:
        """Forward a message with new params, or answer it with a new result.

        `params` and `result` are objects, or JSON objects in a `Raw`.

        Raises:
            NotHeld: The message is not held.
            ConfigError: The message cannot be changed in this way.
        """
        held = self._get(number)[0]
        if (params is None) == (result is None):
            raise ConfigError("exactly one of `params` and `result` must be given")
        if held.question:
            raise ConfigError(f"message {number} cannot be changed: resume or block it")
        if params is not None and held.phase in ("answer", "error"):
            raise ConfigError(f"message {number} is a response: set its `result`, not its `params`")
        if result is not None and held.phase == "notification":
            raise ConfigError(f"message {number} is a notification, which has no result")
        self._decide(number, HoldDecision("change", params=_as_raw(params), result=_as_raw(result)))

    def block(self, number: int, reason: str = "") -> None:
        """Refuse a message.

        Raises:
            NotHeld: The message is not held.
        """
        self._decide(number, HoldDecision("block", reason or "refused by the operator"))

    def block_all(self, reason: str) -> None:
        """Refuse all held messages, because no operator can decide about them."""
        for _, decided in self._held.values():
            if not decided.done():
                decided.set_result(HoldDecision("block", reason))

    def _get(self, number: int) -> tuple[HeldMessage, "asyncio.Future[HoldDecision]"]:
        found = self._held.get(number)
        if found is None or found[1].done():
            raise NotHeld(f"message {number} is not held: it was decided or cancelled")
        return found

    def _decide(self, number: int, verdict: HoldDecision) -> None:
        self._get(number)[1].set_result(verdict)


def _as_raw(value: Any) -> Raw | None:
    if value is None:
        return None
    raw = value if isinstance(value, Raw) else Raw(to_json(value))
    if not bytes(raw).lstrip().startswith(b"{"):
        raise ConfigError("`params` and `result` must be JSON objects")
    return raw
