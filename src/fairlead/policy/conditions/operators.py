"""Operators for conditions on single values: equals, like, in, greater and so on."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, time
from fnmatch import translate
from typing import Any, Final, TypeAlias

from ...redaction.linear_regex import LinearPattern

__all__ = [
    "OPERATORS",
    "InvalidTest",
    "Test",
    "claim_values",
    "compare",
    "find",
    "is_test",
    "name_test",
    "value_test",
]

# called with all values at a path, usually one value
Test: TypeAlias = Callable[[Sequence[Any]], bool]
_Single: TypeAlias = Callable[[Any], bool]


class InvalidTest(Exception):
    """An invalid test in a rule. `operator` is the unknown operator, if the test has one."""

    def __init__(self, reason: str, operator: str | None = None) -> None:
        super().__init__(reason)
        self.operator = operator


def name_test(wanted: Any) -> Test:
    """Compile a test for names: a pattern, a list of patterns, or a map of operators.

    Raises:
        InvalidTest: The value is none of these.
    """
    if isinstance(wanted, str):
        return _any(_like(wanted))
    if isinstance(wanted, list):
        if not wanted or not all(isinstance(one, str) for one in wanted):
            raise InvalidTest("expected a list of strings")
        single = [_like(one) for one in wanted]
        return _any(lambda value: any(test(value) for test in single))
    if isinstance(wanted, dict):
        return compare(wanted)
    raise InvalidTest("expected a string, a list of strings or a map of operators")


def value_test(wanted: Any) -> Test:
    """Compile a test for any value: an equal value, a list of allowed values,
    or a map of operators.
    """
    if isinstance(wanted, dict):
        return compare(wanted)
    if isinstance(wanted, list):
        return compare({"in": wanted})
    return compare({"equals": wanted})


def compare(operators: dict[str, Any]) -> Test:
    """Compile a test that holds if all of these operators hold.

    Raises:
        InvalidTest: An operator is unknown or has an invalid operand.
    """
    if not operators:
        raise InvalidTest(f"expected an operator: {', '.join(sorted(OPERATORS))}")
    tests = []
    for name, wanted in operators.items():
        make = OPERATORS.get(name)
        if make is None:
            raise InvalidTest("", str(name))
        try:
            _require_json(wanted)
            tests.append(make(wanted))
        except InvalidTest as wrong:
            raise InvalidTest(f"`{name}`: {wrong}", None) from None
    if len(tests) == 1:
        return tests[0]
    return lambda values: all(test(values) for test in tests)


def _require_json(wanted: Any) -> None:
    """Reject dates: TOML and YAML have dates but JSON does not, so the test could never match."""
    for one in wanted if isinstance(wanted, list) else (wanted,):
        if isinstance(one, date | time):
            raise InvalidTest("a date must be a string in quotes: JSON has no dates")


def is_test(value: Any) -> bool:
    """Return True if a map consists of operators, not of further path segments."""
    return isinstance(value, dict) and bool(value) and value.keys() <= OPERATORS.keys()


def find(value: Any, path: tuple[str, ...]) -> list[Any]:
    """Return the values at a path.

    `*` matches every item or member, and a number matches one item.
    """
    if not path:
        return [value]
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        if step in value:
            return find(value[step], rest)
        if step == "*":
            return [one for held in value.values() for one in find(held, rest)]
        # A member's name may itself contain dots.
        whole = ".".join(path)
        return [value[whole]] if rest and whole in value else []
    if isinstance(value, list):
        if step == "*":
            return [one for held in value for one in find(held, rest)]
        if step.isdecimal() and int(step) < len(value):
            return find(value[int(step)], rest)
    return []


def claim_values(claims: Mapping[str, Any], path: tuple[str, ...]) -> list[Any]:
    """Return the values at a path in a token's claims. Each item of a list is a separate value."""
    found = find(dict(claims), path)
    return [one for held in found for one in (held if isinstance(held, list) else [held])]


# Operators


def _any(single: _Single) -> Test:
    def test(values: Sequence[Any]) -> bool:
        for value in values:  # noqa: SIM110 - a generator would take twice as long
            if single(value):
                return True
        return False

    return test


def _none(single: _Single) -> Test:
    return lambda values: not any(single(value) for value in values)


def _like(pattern: Any) -> _Single:
    if not isinstance(pattern, str):
        raise InvalidTest("expected a pattern such as `read_*`")
    # Comparing strings is faster than matching a regular expression.
    if not re.search(r"[*?\[]", pattern):
        return lambda value: isinstance(value, str) and value == pattern
    match = re.compile(translate(pattern)).match
    return lambda value: isinstance(value, str) and match(value) is not None


def _matches(pattern: Any) -> _Single:
    if not isinstance(pattern, str):
        raise InvalidTest("expected a regular expression")
    # Peers choose the text to match, so expressions with exponential backtracking are rejected.
    try:
        matches = LinearPattern(pattern).matches
    except ValueError as exc:
        raise InvalidTest(str(exc)) from None
    return lambda value: isinstance(value, str) and matches(value)


def _equals(wanted: Any) -> _Single:
    return lambda value: _same(value, wanted)


def _in(wanted: Any) -> _Single:
    if not isinstance(wanted, list):
        raise InvalidTest("expected a list")
    return lambda value: any(_same(value, one) for one in wanted)


def _contains(wanted: Any) -> _Single:
    def test(value: Any) -> bool:
        if isinstance(value, str):
            return isinstance(wanted, str) and wanted in value
        if isinstance(value, list):
            return any(_same(one, wanted) for one in value)
        return isinstance(value, dict) and isinstance(wanted, str) and wanted in value

    return test


def _exists(wanted: Any) -> Test:
    if not isinstance(wanted, bool):
        raise InvalidTest("expected true or false")
    return lambda values: any(value is not None for value in values) is wanted


def _ordered(holds: Callable[[Any, Any], bool]) -> Callable[[Any], Test]:
    def make(wanted: Any) -> Test:
        if isinstance(wanted, bool) or not isinstance(wanted, int | float | str):
            raise InvalidTest("expected a number or a string")
        kind: Any = str if isinstance(wanted, str) else int | float
        return _any(
            lambda value: (
                isinstance(value, kind) and not isinstance(value, bool) and holds(value, wanted)
            )
        )

    return make


def _same(value: Any, wanted: Any) -> bool:
    """Compare two values; unlike in Python, True does not equal 1."""
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)


OPERATORS: Final[dict[str, Callable[[Any], Test]]] = {
    "equals": lambda wanted: _any(_equals(wanted)),
    "not": lambda wanted: _none(_equals(wanted)),
    "in": lambda wanted: _any(_in(wanted)),
    "not_in": lambda wanted: _none(_in(wanted)),
    "like": lambda wanted: _any(_like(wanted)),
    "not_like": lambda wanted: _none(_like(wanted)),
    "matches": lambda wanted: _any(_matches(wanted)),
    "not_matches": lambda wanted: _none(_matches(wanted)),
    "contains": lambda wanted: _any(_contains(wanted)),
    "exists": _exists,
    "greater": _ordered(lambda value, wanted: value > wanted),
    "at_least": _ordered(lambda value, wanted: value >= wanted),
    "less": _ordered(lambda value, wanted: value < wanted),
    "at_most": _ordered(lambda value, wanted: value <= wanted),
}
