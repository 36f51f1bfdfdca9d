"""Runner of the tests that execute a changed line, which decides if the change was detected."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from .coverage_map import CoverageMap, Test
from .operators import Mutant
from .workspace import ROOT, Workspace

__all__ = ["CAUGHT", "HUNG", "SURVIVED", "UNCOVERED", "Result", "run_mutant"]

CAUGHT, HUNG, SURVIVED, UNCOVERED = "caught", "hung", "survived", "uncovered"

_BUDGET = 180.0  # seconds of recorded test time per mutant
_BUDGET_NEAR = 90.0  # seconds per mutant if no recorded test executes the line
_MOST = 600  # tests per mutant
_FIRST = 2  # tests of each file that run before all others
_TEST_LIMIT = 30.0  # seconds for one test at least; a mutant that makes it hang is caught
_HANGS = 97  # the exit code of `selected.py` when a test exceeds its limit
# The test of generated tables compares all defaults, which coverage cannot select.
_DEFAULTS = "tests/test_generated_docs.py"
_FLAKY = 3  # failures that do not repeat before the mutant counts as not caught


@dataclass
class Result:
    """The outcome for one mutant."""

    mutant: Mutant
    outcome: str
    by: str = ""  # the test that failed
    tests: list[str] = field(default_factory=list)
    covering: int = 0
    seconds: float = 0.0
    flaky: list[str] = field(default_factory=list)


def order(tests: Sequence[Test], module: str, budget: float = _BUDGET) -> list[Test]:
    """Return the tests to run, in order, within the budget.

    Files that are named after the module come first, then the fastest tests of every other file,
    those of the mutant's package before others, then the remaining tests.
    """
    by_file: dict[str, list[Test]] = {}
    for test in sorted(set(tests), key=lambda test: (test.seconds, test.name)):
        by_file.setdefault(test.file, []).append(test)
    package = f"tests/{module.partition('/')[0]}/"

    def nearness(file: str) -> tuple[bool, bool, float]:
        named = is_named_after(module, file)
        return not named, not file.startswith(package), by_file[file][0].seconds

    files = sorted(by_file, key=nearness)
    split = {file: len(by_file[file]) if is_named_after(module, file) else _FIRST for file in files}
    first = [test for file in files for test in _varied(by_file[file])[: split[file]]]
    rest = [test for file in files for test in _varied(by_file[file])[split[file] :]]
    chosen: list[Test] = []
    spent = 0.0
    for test in first + rest:
        if len(chosen) < _MOST and (spent + test.seconds <= budget or not chosen):
            chosen.append(test)
            spent += test.seconds
    return chosen


def is_named_after(module: str, file: str) -> bool:
    """Return True for `tests/wire/test_codec.py` or `test_codec_errors.py` and `wire/codec.py`."""
    folder, _, stem = f"tests/{module.removesuffix('.py')}".rpartition("/")
    home, _, name = file.removesuffix(".py").rpartition("/")
    test = name.removeprefix("test_")
    return home == folder and (test == stem or test.startswith(f"{stem}_"))


def _varied(tests: list[Test]) -> list[Test]:
    """Return the tests with one variant of each parametrized test first."""
    seen: set[str] = set()
    first, others = [], []
    for test in tests:
        function = test.name.partition("[")[0]
        (others if function in seen else first).append(test)
        seen.add(function)
    return first + others


def run_mutant(mutant: Mutant, tests: CoverageMap, workspace: Workspace) -> Result:
    """Apply a mutant in a workspace and run its tests until the same test fails twice."""
    covering = tests.tests_for(mutant)
    # The recorder misses code that runs on import, in C, or in a process that is killed.
    named = tests.tests_in(lambda file: is_named_after(mutant.module, file))
    if covering:
        seen = not mutant.names
        chosen = order([*covering, *(() if seen else named)], mutant.module)
    else:
        chosen = order([*tests.tests_near(mutant), *named], mutant.module, _BUDGET_NEAR)
    # Last, because only mutants that survived all other tests get there.
    chosen = list(dict.fromkeys([*chosen, *tests.tests_in(lambda file: file == _DEFAULTS)]))
    result = Result(mutant, SURVIVED if covering else UNCOVERED, covering=len(covering))
    if not chosen:
        return result
    text = mutant.apply((ROOT / "src" / "fairlead" / mutant.module).read_bytes())
    with workspace.changed(mutant.module, text):
        while True:
            outcome, by, seconds = _run(workspace, chosen)
            result.seconds += seconds
            result.tests = [test.name for test in chosen]
            if outcome == SURVIVED:
                return result
            if not by:
                result.outcome = outcome
                return result
            named = [test for test in chosen if test.name == by]
            again, _, seconds = _run(workspace, named or chosen)
            result.seconds += seconds
            if again != SURVIVED:
                result.outcome, result.by = outcome, by
                return result
            result.flaky.append(by)
            chosen = [test for test in chosen if test.name != by]
            if not chosen or len(result.flaky) >= _FLAKY:
                return result


def _run(workspace: Workspace, tests: Sequence[Test]) -> tuple[str, str, float]:
    """Run tests; return the outcome, the failing test if it is known, and the time."""
    limits = [(test.name, max(_TEST_LIMIT, 10 * test.seconds)) for test in tests]
    selected = workspace.root / ".selected.json"
    selected.write_text(json.dumps(limits))
    failed = selected.with_suffix(".failed")
    failed.unlink(missing_ok=True)
    files = list(dict.fromkeys(test.file for test in tests))
    common = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "selected"]
    limit = 120.0 + 10 * sum(test.seconds for test in tests)
    variables = {
        "PYTHONPATH": str(ROOT / "scripts" / "mutants"),
        "MUTANTS_SELECTED": str(selected),
    }
    done = workspace.run([*common, "--hypothesis-seed=0", *files], limit, **variables)
    if done.code == 0 or done.code == 5:
        return SURVIVED, "", done.seconds
    by = failed.read_text() if failed.exists() else ""
    return (HUNG if done.code in (None, _HANGS) else CAUGHT), by, done.seconds
