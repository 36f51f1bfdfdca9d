"""Access control by method, tool, prompt and resource."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ...interceptor import After, Exchange, Outcome, SyncInterceptor
from ...protocol.envelope import Direction
from ...protocol.methods import QUESTIONS
from ...protocol.targets.targets import Patterns, Target, head_determines_targets
from ...redaction.redact_messages import repeats_a_name
from ...wire.error_codes import INTERNAL_ERROR
from .block import blocked_error

__all__ = ["Allow"]

MAX_KNOWN: Final = 1024  # maximum number of methods and targets remembered as allowed
LONGEST: Final = 256  # maximum length of a remembered method with its targets, in characters

_Place = tuple[str, str | UnsetType | tuple[Target, ...], str | UnsetType]
_ANSWERS: Final = (bytes, Raw)
_UP: Final = Direction.CLIENT_TO_SERVER
_UPDATED: Final = "notifications/resources/updated"
# Keep floats as raw text, so that a number outside the range of a float can be decoded.
_decode: Final = msgspec.json.Decoder(float_hook=lambda text: Raw(text.encode())).decode


class Allow(SyncInterceptor):
    """Allow and deny patterns for targets (names of tools and prompts, URIs) and for methods.

    A request is refused if it matches a `deny` pattern, or if it matches no `allow` pattern. A
    `deny` pattern is compared with every name of a target in every form; an `allow` pattern is
    compared literally with the names that clients see. Lists are not filtered; a view hides items.
    `deny_methods` also applies to messages from servers and to input requests in stateless results.
    The other patterns apply to clients' requests and to notifications about updated resources.
    """

    pure: ClassVar = True

    def __init__(
        self,
        allow: Sequence[str] = ("*",),
        deny: Sequence[str] = (),
        *,
        methods: Sequence[str] = ("*",),
        deny_methods: Sequence[str] = (),
    ) -> None:
        self._allow, self._deny = Patterns(allow), Patterns(deny)
        self._methods, self._denied_methods = Patterns(methods), Patterns(deny_methods)
        self._known: set[_Place] = set()
        # Results are decoded only if a pattern denies a method that an input request can contain.
        self._denies_questions = any(self._deny_methods(name) for name in QUESTIONS)

    def passes(self, exchange: Exchange) -> bool:
        """Return True if the message was allowed before and its response needs no check."""
        if self._denies_questions and exchange.caller.stateless:
            return False
        return _place(exchange) in self._known

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        if exchange.direction is _UP:
            place = _place(exchange)
            if place not in self._known:
                self._judge(exchange, place)
            if self._denies_questions and exchange.caller.stateless:
                return exchange, partial(self._after, exchange)
        elif self._deny_methods(exchange.message.method):
            raise blocked_error(exchange, f"{exchange.method} is not allowed here")
        elif exchange.message.method == _UPDATED:
            self._judge_targets(exchange, exchange.targets)
        elif self._denies_questions:  # A task's status notification may contain input requests.
            params = exchange.message.params
            if not isinstance(params, UnsetType) and (why := self._asks(bytes(params))):
                raise blocked_error(exchange, why)
        return exchange, None

    def _after(self, exchange: Exchange, outcome: Outcome) -> Outcome:
        if isinstance(outcome, _ANSWERS) and (why := self._asks(bytes(outcome))):
            return blocked_error(exchange, why, INTERNAL_ERROR)
        return outcome

    def _asks(self, raw: bytes) -> str:
        """Return the reason why an input request in these bytes is denied, or an empty string."""
        # Searching the bytes is much cheaper than decoding them. An escape sequence could hide the
        # name, so messages with escape sequences are decoded too.
        if raw.find(b"inputRequests") < 0 and raw.find(b"\\u") < 0:
            return ""
        try:
            value = _decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return "An input request that cannot be decoded is not allowed here"
        if not isinstance(value, dict) or "inputRequests" not in value:
            return ""
        for method in _methods_of(value["inputRequests"]):
            if self._deny_methods(method):
                return f"{method} is not allowed here"
        # Peers may disagree about which of two members with the same name applies, so one of them
        # could contain a denied request.
        if repeats_a_name(raw, value):
            return "An input request with a duplicate member name is not allowed here"
        return ""

    def _judge(self, exchange: Exchange, place: _Place) -> None:
        method, targets = exchange.method, exchange.targets
        if not self._methods.allow(_as_target(method)) or self._deny_methods(method):
            raise blocked_error(exchange, f"{method} is not allowed here")
        self._judge_targets(exchange, targets)
        # Names come from clients, so both the number and the length of the entries are limited.
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        if len(method) + sum(len(one.own) for one in targets) <= LONGEST:
            self._known.add(place)

    def _judge_targets(self, exchange: Exchange, targets: tuple[Target, ...]) -> None:
        for target in targets:
            if not self._allow.allow(target) or self._deny.deny(target):
                raise blocked_error(exchange, f"{target.displayed} is not allowed here")

    def _deny_methods(self, method: str) -> bool:
        return bool(self._denied_methods) and self._denied_methods.deny(_as_target(method))


def _place(exchange: Exchange) -> _Place:
    """Return a cache key: the values that determine whether a message is allowed.

    The targets are computed only if the message has a resolver or a displayed name. Otherwise, its
    raw name and URI are enough.
    """
    method, head = exchange.message.method, exchange.head
    plain = exchange.resolver is None and exchange.displayed is None
    if plain and head_determines_targets(method, head):
        return method, head.name, head.uri
    return method, exchange.targets, UNSET


def _as_target(method: str) -> Target:
    return Target("other", method, method)


def _methods_of(questions: Any) -> list[str]:
    """Return the methods of the input requests in a result."""
    asked = questions.values() if isinstance(questions, dict) else ()
    named = [one.get("method") for one in asked if isinstance(one, dict)]
    return [method for method in named if isinstance(method, str)]
