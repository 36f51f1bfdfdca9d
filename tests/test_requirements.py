"""Tests that ticked requirements of docs/requirements.md are covered and covered ids exist."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "requirements.md"
LINE = re.compile(r"^- \[([ x])\] \*\*([A-Z]{3}-\d\d)\*\*", re.MULTILINE)
MARKER = re.compile(r"\bmark\.covers\(([^)]+?),?\s*\)")


def listed() -> dict[str, bool]:
    """Return every requirement id on the page, and whether it is ticked."""
    return {name: tick == "x" for tick, name in LINE.findall(PAGE.read_text())}


def covered() -> dict[str, list[str]]:
    """Return every id in a `covers(...)` marker, with the files that have it."""
    found: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for given in MARKER.findall(file.read_text()):
            # Raises an error unless all arguments are literals.
            for name in ast.literal_eval(f"({given},)"):
                found.setdefault(name, []).append(file.name)
    return found


def test_requirement_ids_are_unique() -> None:
    names = [name for _, name in LINE.findall(PAGE.read_text())]
    assert len(names) == len(set(names))
    assert len(names) > 250


def test_a_ticked_requirement_has_a_test() -> None:
    tests = covered()
    assert [name for name, done in listed().items() if done and name not in tests] == []


def test_tests_name_only_requirements_that_exist() -> None:
    known = listed()
    assert {name: files for name, files in covered().items() if name not in known} == {}
