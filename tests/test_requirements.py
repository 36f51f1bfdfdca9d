"""What docs/requirements.md ticks is shown by a test, and tests name only ids that exist."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "requirements.md"
LINE = re.compile(r"^- \[([ x])\] \*\*([A-Z]{3}-\d\d)\*\*", re.MULTILINE)
MARKER = re.compile(r"\bmark\.covers\(([^)]+?),?\s*\)")


def listed() -> dict[str, bool]:
    """Every id of the page, and whether it is ticked."""
    return {name: tick == "x" for tick, name in LINE.findall(PAGE.read_text())}


def covered() -> dict[str, list[str]]:
    """Every id that a `covers(...)` marker names, with the files that do."""
    found: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for given in MARKER.findall(file.read_text()):
            for name in ast.literal_eval(f"({given},)"):  # literals, or this raises
                found.setdefault(name, []).append(file.name)
    return found


def test_ids_are_listed_once() -> None:
    names = [name for _, name in LINE.findall(PAGE.read_text())]
    assert len(names) == len(set(names))
    assert len(names) > 250


def test_a_ticked_requirement_has_a_test() -> None:
    tests = covered()
    assert [name for name, done in listed().items() if done and name not in tests] == []


def test_tests_name_only_requirements_that_exist() -> None:
    known = listed()
    assert {name: files for name, files in covered().items() if name not in known} == {}
