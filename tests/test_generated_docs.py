"""Tables in the documentation are those that the code and the tests produce."""

import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
generate_docs = importlib.import_module("generate_docs")


@pytest.mark.parametrize("page", generate_docs.pages(), ids=lambda page: page.name)
def test_generated_tables_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert generate_docs.filled(text) == text, "run `make tables`"


def test_the_plot_shows_the_last_results() -> None:
    assert generate_docs.PLOT.read_text() == generate_docs.plot(), "run `make tables`"


def test_the_readme_quotes_the_benchmarks() -> None:
    assert generate_docs.ROOT / "README.md" in generate_docs.pages()


def test_every_limit_has_a_name_of_its_own() -> None:
    names = [limit.name for limit in generate_docs.all_limits()]
    assert names == list(dict.fromkeys(names))


def test_every_limit_has_a_value_and_says_what_happens() -> None:
    assert all(limit.value > 0 and limit.outcome for limit in generate_docs.all_limits())
