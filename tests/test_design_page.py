"""Tests of the module names in docs/design.md."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "design.md"
FILES = [
    f"/{path.relative_to(ROOT).as_posix()}"
    for folder in ("src", "tests")
    for path in (ROOT / folder).rglob("*.py")
]


def test_every_module_named_on_the_design_page_exists() -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE.read_text()))
    assert len(named) > 50
    missing = [name for name in sorted(named) if not any(f.endswith(f"/{name}") for f in FILES)]
    assert missing == []
