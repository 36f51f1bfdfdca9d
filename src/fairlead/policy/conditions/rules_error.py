"""Mistakes in a file of rules, with their locations."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ...errors import ConfigError
from ...suggestions import close_matches

__all__ = ["RuleMistake", "RulesError", "unknown_name"]


class RuleMistake(Struct, frozen=True):
    """One mistake and its location."""

    reason: str
    path: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(one) for one in (self.path, self.line, self.column) if one is not None)
        return f"{place}: {self.reason}" if place else self.reason


class RulesError(ConfigError):
    """A file of rules is invalid; `mistakes` lists everything that is wrong with it."""

    def __init__(self, mistakes: Sequence[RuleMistake]) -> None:
        first = mistakes[0]
        super().__init__(first.reason, path=first.path, line=first.line)
        self.mistakes = tuple(mistakes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.mistakes))


def unknown_name(what: str, name: object, known: Iterable[str]) -> str:
    """Build an "unknown name" message with the closest match, or with all valid names."""
    names = sorted(known)
    if near := close_matches(str(name), names):
        return f'unknown {what} "{name}"; did you mean "{near[0]}"?'
    return f'unknown {what} "{name}"; expected one of {", ".join(names)}'
