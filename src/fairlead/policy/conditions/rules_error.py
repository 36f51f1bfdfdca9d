"""Mistakes in a rule file, with their locations."""

from collections.abc import Sequence

from msgspec import Struct

from ...errors import ConfigError

__all__ = ["RuleMistake", "RulesError"]


class RuleMistake(Struct, frozen=True):
    """A mistake and its location."""

    reason: str
    path: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(one) for one in (self.path, self.line, self.column) if one is not None)
        return f"{place}: {self.reason}" if place else self.reason


class RulesError(ConfigError):
    """A rule file is invalid; `mistakes` lists all mistakes in it."""

    def __init__(self, mistakes: Sequence[RuleMistake]) -> None:
        first = mistakes[0]
        super().__init__(first.reason, path=first.path, line=first.line)
        self.mistakes = tuple(mistakes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.mistakes))
