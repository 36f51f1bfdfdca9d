"""Tests of the mutation operators and of the list of known mutants."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "scripts"))

from mutants.known import known_mutants
from mutants.operators import OPERATORS, compiles, mutants_of


def changed(source: str, operator: str) -> list[str]:
    """Return the source after each mutation by one operator."""
    text = source.encode()
    found = mutants_of("m.py", text)
    assert all(compiles(mutant, text) for mutant in found)
    return [mutant.apply(text).decode() for mutant in found if mutant.operator == operator]


@pytest.mark.parametrize(
    ("operator", "before", "after"),
    [
        ("negate-comparison", "x = a < b", ["x = a >= b"]),
        ("negate-comparison", "x = a is not (b)", ["x = a is (b)"]),
        ("negate-comparison", "x = a < b in c", ["x = a < b not in c", "x = a >= b in c"]),
        ("move-boundary", "x = a < b", ["x = a <= b"]),
        ("negate-condition", "if f(x):\n    pass", ["if not (f(x)):\n    pass"]),
        ("negate-condition", "if a == b:\n    pass", []),
        ("remove-not", "x = not a", ["x = (a)"]),
        ("swap-and-or", "x = a and b or c", ["x = a and b and c", "x = a or b or c"]),
        ("swap-arithmetic", "x = a + b", ["x = a - b"]),
        ("swap-arithmetic", "x += 'ü' * n", ["x -= 'ü' * n", "x += 'ü' // n"]),
        ("swap-arithmetic", "x = int | None", []),
        ("add-one", "x = y[1:]", ["x = y[2:]"]),
        ("add-one", "x: 'Literal[1]' = 0.5", ["x: 'Literal[1]' = 1.5"]),
        ("flip-boolean", "f(a=True)", ["f(a=False)"]),
        ("flip-boolean", "class A(Struct, frozen=True): pass", []),
        ("change-default", "def f(a='x'): pass", ["def f(a='xmutated'): pass"]),
        ("remove-call", "f()", ["pass"]),
        ("remove-call", "async def f():\n    await g()", ["async def f():\n    pass"]),
        ("remove-call", "log.info('x')", []),
        ("return-none", "def f():\n    return 1", ["def f():\n    return None"]),
        ("return-none", "def f():\n    return None", []),
        ("return-none", "def f():\n    return False", []),
        ("remove-raise", "raise ValueError", ["pass"]),
        ("swap-loop-exit", "for x in y:\n    break", ["for x in y:\n    continue"]),
        ("flip-boolean", "if TYPE_CHECKING:\n    x = True", []),
        ("negate-condition", "if TYPE_CHECKING:\n    x = True", []),
        ("add-one", "__all__ = [1]", []),
    ],
)
def test_a_mutation_operator_makes_one_change(operator: str, before: str, after: list[str]) -> None:
    assert operator in OPERATORS
    assert sorted(changed(before, operator)) == sorted(after)


def test_a_mutant_contains_the_lines_that_must_run_to_show_an_effect() -> None:
    source = b"LIMIT = 5\n\n\ndef f(a=1):\n    if a > 2:\n        return a\n    return 3\n"
    found = {(m.line, m.operator): m for m in mutants_of("m.py", source)}
    assert found[1, "add-one"].names == ("LIMIT",)
    assert found[4, "add-one"].extent == (5, 7)
    assert found[5, "add-one"].extent == (5, 5)
    assert found[6, "return-none"].extent == (6, 6)
    assert found[6, "return-none"].function == (5, 7)


def test_every_known_mutant_applies_to_the_sources() -> None:
    sources = Path(__file__).parents[1] / "src" / "fairlead"
    mutants = known_mutants()
    assert len(mutants) >= 15
    assert all(compiles(mutant, (sources / mutant.module).read_bytes()) for mutant in mutants)
