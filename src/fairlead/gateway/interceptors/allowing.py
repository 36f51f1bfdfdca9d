"""Which methods, tools, prompts and resources may be used at all."""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Raw, UnsetType

from ...interceptor import After, Exchange, Outcome, TwoHalves
from ...observe.redactor import repeats_a_name
from ...protocol.envelope import Direction
from ...protocol.methods import METHODS, is_question
from ...wire.codes import INTERNAL_ERROR
from .blocking import blocked

__all__ = ["Allow"]

MAX_KNOWN: Final = 1024  # methods and targets that are remembered as allowed
LONGEST: Final = 256  # characters of a target that is

_Member = str | UnsetType
_ANSWERS: Final = (bytes, Raw)
_UP: Final = Direction.CLIENT_TO_SERVER
_QUESTIONS: Final = [method.name for method in METHODS if is_question(method.name)]
# Numbers that are beyond all bounds do not matter here.
_decode: Final = msgspec.json.Decoder(float_hook=lambda text: Raw(text.encode())).decode


class Allow(TwoHalves):
    """Patterns for targets (names of tools and prompts, URIs) and for methods.

    What a `deny` matches is refused, and so is what no `allow` matches. Lists pass; a view hides
    what need not be seen. `deny_methods` hold for what servers send, too, and for the questions
    that a result may have in the stateless era; all else is about what clients ask for.
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
        self._allow, self._deny = _any(allow), _any(deny)
        self._methods, self._deny_methods = _any(methods), _any(deny_methods)
        self._known: set[tuple[str, _Member, _Member]] = set()
        # Nobody looks into results but for those who do not want to be asked something.
        self._denies_questions = any(self._deny_methods(name) for name in _QUESTIONS)

    def passes(self, exchange: Exchange) -> bool:
        """Whether it is known to be allowed, and so is whatever it is answered with."""
        if self._denies_questions and exchange.caller.stateless:
            return False
        head = exchange.head
        return (exchange.message.method, head.name, head.uri) in self._known

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        if exchange.direction is _UP:
            head = exchange.head
            if (exchange.message.method, head.name, head.uri) not in self._known:
                self._judge(exchange, exchange.method, exchange.target)
            if self._denies_questions and exchange.caller.stateless:
                return exchange, partial(self._after, exchange)
        elif self._deny_methods(exchange.message.method):
            raise blocked(exchange, f"{exchange.method} is not allowed here")
        elif self._denies_questions:  # news of a task may have some
            params = exchange.message.params
            if not isinstance(params, UnsetType) and (why := self._asks(bytes(params))):
                raise blocked(exchange, why)
        return exchange, None

    def _after(self, exchange: Exchange, outcome: Outcome) -> Outcome:
        if isinstance(outcome, _ANSWERS) and (why := self._asks(bytes(outcome))):
            return blocked(exchange, why, INTERNAL_ERROR)
        return outcome

    def _asks(self, raw: bytes) -> str:
        """Why it must not pass, if there is a question in it that is not allowed."""
        if raw.find(b"inputRequests") < 0 and raw.find(b"\\u") < 0:
            return ""
        try:
            value = _decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return "A question that cannot be read is not allowed here"
        if not isinstance(value, dict) or "inputRequests" not in value:
            return ""
        for method in _methods_of(value["inputRequests"]):
            if self._deny_methods(method):
                return f"{method} is not allowed here"
        if repeats_a_name(raw, value):  # the other one may be a question, too
            return "A question in which a name is there twice is not allowed here"
        return ""

    def _judge(self, exchange: Exchange, method: str, target: str | None) -> None:
        if not self._methods(method) or self._deny_methods(method):
            raise blocked(exchange, f"{method} is not allowed here")
        if target is not None and (not self._allow(target) or self._deny(target)):
            raise blocked(exchange, f"{target} is not allowed here")
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        head = exchange.head
        if len(method) + len(head.name or "") + len(head.uri or "") <= LONGEST:
            self._known.add((method, head.name, head.uri))


def _methods_of(questions: Any) -> list[str]:
    """Of the questions that a result has, by their names."""
    asked = questions.values() if isinstance(questions, dict) else ()
    named = [one.get("method") for one in asked if isinstance(one, dict)]
    return [method for method in named if isinstance(method, str)]


def _any(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a name matches one of some patterns."""
    wanted = list(patterns)
    if not wanted:
        return lambda name: False
    if "*" in wanted:
        return lambda name: True
    match = re.compile("|".join(map(translate, wanted))).match
    return lambda name: match(name) is not None
