"""Which methods, tools, prompts and resources may be used at all."""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from typing import ClassVar, Final

from msgspec import UnsetType

from ...interceptor import After, Exchange, TwoHalves
from ...protocol.envelope import Direction
from .blocking import blocked

__all__ = ["Allow"]

MAX_KNOWN: Final = 1024  # methods and targets that are remembered as allowed
LONGEST: Final = 256  # characters of a target that is

_Member = str | UnsetType
_UP: Final = Direction.CLIENT_TO_SERVER


class Allow(TwoHalves):
    """Patterns for targets (names of tools and prompts, URIs) and for methods.

    What a `deny` matches is refused, and so is what no `allow` matches. Lists pass; a view hides
    what need not be seen.
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

    def passes(self, exchange: Exchange) -> bool:
        """Whether it is known to be allowed."""
        head = exchange.head
        return (exchange.message.method, head.name, head.uri) in self._known

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        if exchange.direction is _UP:
            head = exchange.head
            if (exchange.message.method, head.name, head.uri) not in self._known:
                self._judge(exchange, exchange.method, exchange.target)
        return exchange, None

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


def _any(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a name matches one of some patterns."""
    wanted = list(patterns)
    if not wanted:
        return lambda name: False
    if "*" in wanted:
        return lambda name: True
    match = re.compile("|".join(map(translate, wanted))).match
    return lambda name: match(name) is not None
