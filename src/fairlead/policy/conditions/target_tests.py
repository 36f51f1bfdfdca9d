"""Tests for a message's targets, which compare all names of a target in all their forms.

A test is compiled in one of two modes. The default is for rules that restrict: it holds if any form
of any name of any target matches. The strict mode is for rules that permit: it holds if every
target matches with a name that the operator controls, in every form. A negated operator is the
negation of the positive operator in the other mode.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from ...protocol.targets.name_forms import normalize_name
from ...protocol.targets.targets import Patterns, Target
from ...protocol.targets.uri_forms import normalize_uri
from .operators import OPERATORS, Test, compare, name_test

__all__ = ["TargetTest", "server_test", "target_test"]

TargetTest: TypeAlias = Callable[[tuple[Target, ...]], bool]
_Single: TypeAlias = Callable[[Target], bool]

_NEGATED: Final = {
    "not": "equals",
    "not_in": "in",
    "not_like": "like",
    "not_matches": "matches",
}


def target_test(wanted: Any, *, strict: bool) -> TargetTest:
    """Compile a pattern, a list of patterns, or a map of operators.

    Raises:
        InvalidTest: The value is none of these.
    """
    name_test(wanted)  # called only because it raises InvalidTest; the result is not used
    if not isinstance(wanted, dict):
        patterns = Patterns([wanted] if isinstance(wanted, str) else wanted)
        return _combined(patterns.allow if strict else patterns.deny, strict=strict)
    tests = [_operator(name, given, strict=strict) for name, given in wanted.items()]
    return tests[0] if len(tests) == 1 else lambda targets: all(test(targets) for test in tests)


def server_test(wanted: Any, *, strict: bool) -> Callable[[tuple[str, ...]], bool]:
    """Compile a test for a message's servers; each server has only one spelling.

    Raises:
        InvalidTest: The value is not a valid test.
    """
    test = name_test(wanted)
    every = all if strict else any

    def holds(servers: tuple[str, ...]) -> bool:
        return every(test((one,)) for one in servers) if servers else test(())

    return holds


def _operator(name: str, wanted: Any, *, strict: bool) -> TargetTest:
    if name in _NEGATED:
        positive = _operator(_NEGATED[name], wanted, strict=not strict)
        return lambda targets: not positive(targets)
    if name == "exists":
        test = OPERATORS[name](wanted)
        return lambda targets: test([one.displayed for one in targets])
    texts = _texts(name, wanted)
    if texts is not None:
        patterns = Patterns(texts)
        return _combined(patterns.allow if strict else patterns.deny, strict=strict)
    return _combined(_other(name, wanted, strict=strict), strict=strict)


def _texts(name: str, wanted: Any) -> list[str] | None:
    """Return the patterns that are equivalent to an operator, or None."""
    if name == "like":
        return [wanted]
    if name == "equals":
        return [_escaped(wanted)] if isinstance(wanted, str) else []
    if name == "in":
        return [_escaped(one) for one in wanted if isinstance(one, str)]
    return None


def _escaped(text: str) -> str:
    return "".join(f"[{one}]" if one in "*?[" else one for one in text)


def _other(name: str, wanted: Any, *, strict: bool) -> _Single:
    """Compile any other operator. It is applied to each form; unless `strict`, in lower case."""
    test = compare({name: wanted})
    if strict:
        return lambda target: target.every_form(lambda form: test((form,)))
    tests: list[Test] = [test]
    if name == "contains" and isinstance(wanted, str):
        folded = {normalize_name(wanted).casefold(), normalize_uri(wanted).casefold()}
        tests += [compare({name: one}) for one in folded]

    def holds(form: str) -> bool:
        return any(one((form, form.casefold())) for one in tests)

    return lambda target: target.any_form(holds)


def _combined(single: _Single, *, strict: bool) -> TargetTest:
    every = all if strict else any

    def holds(targets: Sequence[Target]) -> bool:
        return bool(targets) and every(map(single, targets))

    return holds
