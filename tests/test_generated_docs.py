"""Tests that generated tables in the documentation are up to date."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
generate_docs = importlib.import_module("generate_docs")
settings_tables = importlib.import_module("settings_tables")
constants_table = importlib.import_module("constants_table")


@pytest.mark.parametrize("page", generate_docs.pages(), ids=lambda page: page.name)
def test_generated_tables_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert generate_docs.filled(text) == text, "run `make tables`"


def test_the_benchmark_plot_shows_the_latest_results() -> None:
    assert generate_docs.PLOT.read_text() == generate_docs.plot(), "run `make tables`"


def test_the_readme_has_generated_sections() -> None:
    assert generate_docs.ROOT / "README.md" in generate_docs.pages()


def test_names_of_limits_are_unique() -> None:
    names = [limit.name for limit in generate_docs.all_limits()]
    assert names == list(dict.fromkeys(names))


def test_every_limit_has_a_value_and_a_consequence() -> None:
    assert all(limit.value > 0 and limit.outcome for limit in generate_docs.all_limits())


def test_every_settings_class_has_a_table() -> None:
    found = {
        node.name
        for path in (generate_docs.ROOT / "src").rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
        and node.name.endswith(("Settings", "Config", "Rules"))
        and not node.name.startswith("_")
    }
    places = settings_tables.SETTINGS_TYPES.values()
    assert found - {place.rpartition(":")[2] for place in places} == set()


def test_every_settings_table_occurs_on_exactly_one_page() -> None:
    text = "".join(page.read_text() for page in generate_docs.pages())
    counts = {
        name: text.count(f"<!-- generated: {name} -->") for name in settings_tables.SETTINGS_TABLES
    }
    assert counts == dict.fromkeys(settings_tables.SETTINGS_TABLES, 1)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.5, "seconds", "0.5 s"),
        (16 << 20, "bytes", "16 MiB"),
        (1000, "bytes", "1,000 bytes"),
        (0, "bytes", "0 bytes"),
        (10_000, "", "10,000"),
        (50.0, "per second", "50 per second"),
    ],
)
def test_setting_values_are_shown_with_their_unit(value: float, unit: str, shown: str) -> None:
    assert settings_tables.amount(value, unit) == shown


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("LIMIT = 2.5  # seconds for an answer", ("LIMIT", (2.5,), "seconds for an answer")),
        (
            "# A reason\n# of two lines.\nA: Final = 4 << 10",
            ("A", (4096,), "A reason of two lines."),
        ),
        ("BACKOFF = (0.1, 1)", ("BACKOFF", (0.1, 1), "")),
        ("LEAST = -1", ("LEAST", (-1,), "")),
        ("class A:\n    LIMIT = 3  # of them", ("A.LIMIT", (3,), "of them")),
        ("KNOWN = True", None),
        ("lower = 1", None),
        ("LIMIT = other + 1", None),
        ("def f():\n    LIMIT = 1", None),
    ],
)
def test_upper_case_number_constants_are_listed(
    source: str, shown: tuple[object, ...] | None
) -> None:
    found = [one[1:] for one in constants_table.constants_of("m.py", source)]
    assert found == ([] if shown is None else [shown])


def test_constants_assigned_together_are_listed_separately() -> None:
    found = constants_table.constants_of("m.py", "FIRST, LAST = 0.5, 2 * 60.0  # seconds")
    assert [one[1:] for one in found] == [
        ("FIRST", (0.5,), "seconds"),
        ("LAST", (120.0,), "seconds"),
    ]
