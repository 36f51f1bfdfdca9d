"""Tests that the tests named in the threat tables of docs/security.md exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/security.md").read_text())


def test_the_security_page_names_more_than_twenty_tests() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)))
def test_a_test_named_on_the_security_page_exists(path: str, name: str) -> None:
    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(), re.M)
