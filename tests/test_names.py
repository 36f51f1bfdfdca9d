"""Tests of the names and sizes of modules and packages, and of the locations of test files."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "fairlead"
TESTS = Path(__file__).parent
MODULES = sorted(path for path in SOURCE.rglob("*.py"))
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))

MOST_MODULES = 14  # per package
MOST_LINES = 500  # per file
# Collections of similar modules have no size limit, because readers look up single modules.
COLLECTIONS = {"config/hosts", "policy/actions", "protocol/types"}
# Established nouns that end in "-ing".
GERUNDS = {"framing", "logging", "routing", "sampling", "testing"}
# Names of modules that exist on both the client and the server side of HTTP.
HALVES = {"legacy_sse", "request_headers"}
# Folders with tests of several modules together, or of the repository itself.
ACROSS = {
    "attacks",
    "chaos",
    "conformance",
    "interop",
    "matrix",
    "scenarios",
    "suites",
    "support",
    "typing",
}


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def test_public_class_names_are_unique() -> None:
    homes = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(relative(path))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_module_names_are_unique() -> None:
    homes = defaultdict(list)
    for path in MODULES:
        if not path.stem.startswith("__") and path.stem not in HALVES:
            homes[path.stem].append(relative(path))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_module_names_do_not_end_in_ing() -> None:
    names = {path.stem for path in MODULES} - GERUNDS
    assert sorted(name for name in names if name.endswith("ing")) == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_packages_have_a_docstring_and_a_limited_number_of_modules(package: Path) -> None:
    assert ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    modules = [path for path in package.glob("*.py") if path.stem != "__init__"]
    if relative(package) not in COLLECTIONS:
        assert len(modules) <= MOST_MODULES


def test_source_files_have_a_limited_number_of_lines() -> None:
    lengths = {relative(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_most_test_files_have_the_path_of_their_module() -> None:
    """At least 85 % of the test files have the same path as the module that they test."""
    files = [
        path.relative_to(TESTS)
        for path in TESTS.rglob("test_*.py")
        if len(path.relative_to(TESTS).parts) > 1 and path.relative_to(TESTS).parts[0] not in ACROSS
    ]
    lost = [
        path
        for path in files
        if not (SOURCE / path.parent / f"{path.stem.removeprefix('test_')}.py").is_file()
    ]
    assert len(lost) <= 0.15 * len(files), lost
