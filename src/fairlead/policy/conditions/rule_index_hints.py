"""What must be there before a condition can hold: enough to leave most rules alone unasked.

A hook names a place and what has to stand there. A rule need be looked at only when one of its
hooks has caught something; whether it then applies is still for its condition to say.
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
    """One thing that may stand at a place."""

    kind: Literal["equal", "like", "there"]
    wanted: Any = None


class IndexHook(NamedTuple):
    """A place, by its source and the path in it; and what has to stand there."""

    source: str
    path: tuple[str, ...]
    hint: IndexHint


# One of them must catch something; None: nothing is needed, or nobody can say what.
Hooks: TypeAlias = tuple[IndexHook, ...] | None
Hints: TypeAlias = tuple[IndexHint, ...] | None

_THERE: Final = (IndexHint("there"),)
_DECODED: Final = frozenset({"params", "result", "failure"})  # places that are costly to look at


def hints_of_name(wanted: Any) -> Hints:
    """What a name must be like; see `name_test`."""
    if isinstance(wanted, str):
        return (_like(wanted),)
    if isinstance(wanted, list):
        return tuple(_like(one) for one in wanted if isinstance(one, str))
    return _compared(wanted)


def hints_of_value(wanted: Any) -> Hints:
    """What a value must be like; see `value_test`."""
    if isinstance(wanted, list):
        return tuple(_equal(one) for one in wanted)
    return _compared(wanted) if isinstance(wanted, dict) else (_equal(wanted),)


def most_selective(several: Sequence[Hooks]) -> Hooks:
    """Of conditions that must all hold, the hooks that catch the least."""
    found = [hooks for hooks in several if hooks is not None]
    return min(found, key=_weight) if found else None


def _weight(hooks: tuple[IndexHook, ...]) -> tuple[int, int, int]:
    if not hooks:
        return -1, 0, 0  # it never holds
    worst = max(("equal", "like", "there").index(hook.hint.kind) for hook in hooks)
    return worst, sum(hook.source in _DECODED for hook in hooks), len(hooks)


def _compared(operators: Any) -> Hints:
    """All operators must hold, so one that says what is needed is enough."""
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


# Operators that need some value; those that say `not` are content without any.
_NEEDING: Final = ("matches", "contains", "greater", "at_least", "less", "at_most", "exists")


def _equal(wanted: Any) -> IndexHint:
    plain = wanted is None or isinstance(wanted, str | int | float)
    return IndexHint("equal", wanted) if plain else IndexHint("there")


def _like(pattern: str) -> IndexHint:
    is_pattern = re.search(r"[*?\[]", pattern) is not None
    return IndexHint("like" if is_pattern else "equal", pattern)
