"""Index of rule hooks, which finds the rules that may apply to a message."""

import re
from collections.abc import Iterable
from fnmatch import translate
from typing import Any, Final, TypeAlias

from .conditions import SOURCES
from .facts import Facts
from .rule_index_hints import IndexHint, IndexHook

__all__ = ["RuleIndex"]

_Like: TypeAlias = tuple[re.Pattern[str], int]

_PLAIN: Final = (str, int, float, type(None))
_TREES: Final = ("params", "headers", "result", "failure")


class RuleIndex:
    """Maps hooks to rule numbers.

    A lookup returns the numbers whose hooks match a message.
    """

    def __init__(self) -> None:
        self._names: dict[str, _Values] = {}
        self._trees: dict[str, _Branch] = {}

    def add(self, hooks: Iterable[IndexHook], number: int) -> None:
        for hook in hooks:
            if hook.source in _TREES:
                tree = self._trees.setdefault(hook.source, _Branch())
                tree.add(hook.path, hook.hint, number)
            else:
                self._names.setdefault(hook.source, _Values()).add(hook.hint, number)

    def candidates(self, facts: Facts) -> set[int]:
        caught: set[int] = set()
        if self._names:
            for name, values in self._names.items():
                found = SOURCES[name](facts)
                if type(found) is tuple:
                    for one in found:
                        values.look(one, caught)
                elif found is not None:
                    values.look(found, caught)
        if self._trees:
            for name, tree in self._trees.items():
                tree.look(getattr(facts, name), caught)
        return caught


class _Values:
    """Index of the hooks for the value at one path."""

    __slots__ = ("_any_like", "_equal", "_like", "_starts", "_there")

    def __init__(self) -> None:
        self._equal: dict[Any, list[int]] = {}
        # patterns by their literal prefix, grouped by the prefix length
        self._starts: dict[int, dict[str, list[_Like]]] = {}
        self._like: list[_Like] = []  # patterns without a literal prefix
        self._any_like: re.Pattern[str] | None = None
        self._there: list[int] = []

    def add(self, hint: IndexHint, number: int) -> None:
        if hint.kind == "equal":
            self._equal.setdefault(_told_apart(hint.wanted), []).append(number)
        elif hint.kind == "like":
            pattern: str = hint.wanted
            start, like = _start_of(pattern), (re.compile(translate(pattern)), number)
            if start:
                self._starts.setdefault(len(start), {}).setdefault(start, []).append(like)
            else:
                self._like.append(like)
                self._any_like = None
        else:
            self._there.append(number)

    def look(self, value: Any, caught: set[int]) -> None:
        if self._there:
            caught.update(self._there)
        if self._equal and isinstance(value, _PLAIN):
            same = self._equal.get(value if type(value) is str else _told_apart(value))
            if same is not None:
                caught.update(same)
        if isinstance(value, str):
            for length, starts in self._starts.items():
                found = starts.get(value[:length])
                if found is not None:
                    caught.update(number for one, number in found if one.match(value) is not None)
            if self._like:
                self._look_like(value, caught)

    def _look_like(self, text: str, caught: set[int]) -> None:
        if self._any_like is None:
            # One regular expression for all patterns rejects most values with a single match.
            self._any_like = re.compile("|".join(one.pattern for one, _ in self._like))
        if self._any_like.match(text) is not None:
            caught.update(number for one, number in self._like if one.match(text) is not None)


class _Branch:
    """Index of the hooks whose paths continue below one segment."""

    __slots__ = ("_below", "_each", "_here", "_items", "_whole")

    def __init__(self) -> None:
        self._here: _Values | None = None
        self._below: dict[str, _Branch] = {}
        self._items: dict[str, int] = {}  # numeric segments; `1` and `01` select the same item
        self._each: _Branch | None = None
        self._whole: dict[str, _Values] = {}  # hooks for members whose names contain dots

    def add(self, path: tuple[str, ...], hint: IndexHint, number: int) -> None:
        if not path:
            self._here = self._here or _Values()
            self._here.add(hint, number)
            return
        step, rest = path[0], path[1:]
        # `find` also accepts a member whose name contains the dots of the path.
        if rest:
            self._whole.setdefault(".".join(path), _Values()).add(hint, number)
        if step == "*":
            self._each = self._each or _Branch()
            self._each.add(rest, hint, number)
        below = self._below.setdefault(step, _Branch())
        below.add(rest, hint, number)
        if step.isdecimal():
            self._items[step] = int(step)

    def look(self, value: Any, caught: set[int]) -> None:
        if self._here is not None:
            self._here.look(value, caught)
        if type(value) is dict:
            below = self._below
            if below:
                # Iterate over the smaller of the two dictionaries.
                for name in value if len(value) < len(below) else below:
                    if name in below and name in value:
                        below[name].look(value[name], caught)
            if self._whole or self._each is not None:
                self._look_further(value, caught)
        elif type(value) is list:
            for step, place in self._items.items():
                if place < len(value):
                    self._below[step].look(value[place], caught)
            if self._each is not None:
                for item in value:
                    self._each.look(item, caught)

    def _look_further(self, value: dict[str, Any], caught: set[int]) -> None:
        whole = self._whole
        if not whole.keys().isdisjoint(value.keys()):
            for name in whole.keys() & value.keys():
                whole[name].look(value[name], caught)
        if self._each is not None:
            for held in value.values():
                self._each.look(held, caught)


def _start_of(pattern: str) -> str:
    """Return the literal prefix of a pattern."""
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0]


def _told_apart(value: Any) -> Any:
    """Return a dictionary key that distinguishes True from 1."""
    return ("bool", value) if isinstance(value, bool) else value
