"""Tables in the documentation are those that the code and the tests produce."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def load() -> ModuleType:
    path = ROOT / "scripts" / "generate_docs.py"
    spec = importlib.util.spec_from_file_location("generate_docs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate_docs = load()


@pytest.mark.parametrize("page", generate_docs.pages(), ids=lambda page: page.name)
def test_generated_tables_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert generate_docs.filled(text) == text, "run `make tables`"


def test_every_limit_has_a_name_of_its_own() -> None:
    names = [limit.name for limit in generate_docs.all_limits()]
    assert names == list(dict.fromkeys(names))


def test_every_limit_has_a_value_and_says_what_happens() -> None:
    assert all(limit.value > 0 and limit.outcome for limit in generate_docs.all_limits())
