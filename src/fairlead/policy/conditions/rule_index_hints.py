"""Necessary conditions with which the rule index skips most rules without evaluating them.

A hook names a path in a message and a value that the path must have. A rule is evaluated only if
one of its hooks matches; its condition then decides whether the rule applies.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

__all__ = [
    "Hints",
    "Hooks",
    "IndexHint",
    "IndexHook",
    "hints_of_name",
    "hints_of_value",
    "most_selective",
]


class IndexHint(NamedTuple):
    """A requirement for one value in a message: equal to a value, matching a pattern,
    or present.
    """

    kind: Literal["equal", "like", "there"]
    wanted: Any = None


class IndexHook(NamedTuple):
    """A requirement for the value at a path in a source, such as the params."""

    source: str
    path: tuple[str, ...]
    hint: IndexHint


# At least one of the hooks or hints must match. None means that no requirement can be derived.
Hooks: TypeAlias = tuple[IndexHook, ...] | None
Hints: TypeAlias = tuple[IndexHint, ...] | None

_THERE: Final = (IndexHint("there"),)
# sources that are expensive to compare because they must be decoded first
_DECODED: Final = frozenset({"params", "result", "failure"})


def hints_of_name(wanted: Any) -> Hints:
    """Return hints that a test for names implies; see `name_test`."""
    if isinstance(wanted, str):
        return (_like(wanted),)
    if isinstance(wanted, list):
        return tuple(_like(one) for one in wanted if isinstance(one, str))
    return _compared(wanted)


def hints_of_value(wanted: Any) -> Hints:
    """Return hints that a test for values implies; see `value_test`."""
    if isinstance(wanted, list):
        return tuple(_equal(one) for one in wanted)
    return _compared(wanted) if isinstance(wanted, dict) else (_equal(wanted),)


def most_selective(several: Sequence[Hooks]) -> Hooks:
    """Of several required conditions, return the hooks that probably match least often."""
    found = [hooks for hooks in several if hooks is not None]
    return min(found, key=_weight) if found else None


def _weight(hooks: tuple[IndexHook, ...]) -> tuple[int, int, int]:
    if not hooks:
        return -1, 0, 0  # the condition never matches
    worst = max(("equal", "like", "there").index(hook.hint.kind) for hook in hooks)
    return worst, sum(hook.source in _DECODED for hook in hooks), len(hooks)


def _compared(operators: Any) -> Hints:
    """Return hints for a map of operators. All operators must hold, so the hints of one suffice."""
    if not isinstance(operators, dict):
        return None
    for name in ("equals", "in", "like", *_NEEDING):
        if name not in operators:
            continue
        wanted = operators[name]
        if name == "equals":
            return (_equal(wanted),)
        if name == "in":
            return tuple(_equal(one) for one in wanted)
        if name == "like":
            return (_like(wanted),)
        if name != "exists" or wanted is True:
            return _THERE
    return None


# Operators that need a value. Negated operators also hold if the value is missing.
_NEEDING: Final = ("matches", "contains", "greater", "at_least", "less", "at_most", "exists")


def _equal(wanted: Any) -> IndexHint:
    plain = wanted is None or isinstance(wanted, str | int | float)
    return IndexHint("equal", wanted) if plain else IndexHint("there")


def _like(pattern: str) -> IndexHint:
    is_pattern = re.search(r"[*?\[]", pattern) is not None
    return IndexHint("like" if is_pattern else "equal", pattern)
