"""Write the generated parts of the documentation: tables and a plot from code, tests and results.

Run `make tables` after a change; `tests/test_generated_docs.py` fails while a table is out of date.
"""

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from api_reference import API_TABLES
from cli_reference import cli_reference
from constants_table import constants_table
from evidence_tables import BENCHMARKS, EVIDENCE_TABLES
from settings_tables import SETTINGS_TABLES, amount

from fairlead.limits import all_limits

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from bench.plot import draw  # noqa: E402 - beside the package, and not installed

PLOT = BENCHMARKS.with_name("stdio.svg")
_PART = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


class Attack(NamedTuple):
    """The arguments of `@pytest.mark.attack` on a test."""

    attack: str
    limit: str
    outcome: str
    file: str


def limits_table() -> str:
    """Return every limit of `fairlead.limits` as a table."""
    lines = [
        "| Limit | Default | Per | When it is reached | Setting |",
        "|---|---|---|---|---|",
    ]
    for limit in all_limits():
        setting = f"`{limit.setting}`" if limit.setting else ""
        value = amount(limit.value, limit.unit)
        lines.append(f"| `{limit.name}` | {value} | {limit.per} | {limit.outcome} | {setting} |")
    return "\n".join(lines) + "\n"


def attacks_table() -> str:
    """Return the attacks of the tests in `tests/attacks` and their outcomes as a table."""
    lines = ["| Attack | Limit or rule | Outcome | Test |", "|---|---|---|---|"]
    for one in sorted(attacks(), key=lambda one: (one.file, one.attack)):
        lines.append(f"| {one.attack} | {one.limit} | {one.outcome} | `{one.file}` |")
    return "\n".join(lines) + "\n"


def attacks() -> Iterator[Attack]:
    """Yield the arguments of every `@pytest.mark.attack` below `tests/attacks`."""
    for path in sorted((ROOT / "tests" / "attacks").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.attack":
                values = [ast.literal_eval(argument) for argument in node.args]
                yield Attack(*values, path.name)


TABLES: Mapping[str, Callable[[], str]] = {
    "limits": limits_table,
    "attacks": attacks_table,
    "constants": constants_table,
    "cli": cli_reference,
    **API_TABLES,
    **SETTINGS_TABLES,
    **EVIDENCE_TABLES,
}


def filled(text: str) -> str:
    """Return the text of a page with its generated parts updated."""
    return _PART.sub(lambda part: part[1] + "\n" + TABLES[part["name"]]() + "\n" + part[3], text)


def pages() -> list[Path]:
    """Return the pages that have generated parts."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in every if _PART.search(page.read_text())]


def plot() -> str | None:
    """Return the plot of the last full run of the benchmarks; None if there was none."""
    return draw(json.loads(BENCHMARKS.read_text())) if BENCHMARKS.exists() else None


def main() -> int:
    for page in pages():
        text = page.read_text()
        if (new := filled(text)) != text:
            page.write_text(new)
            print(f"wrote {page.relative_to(ROOT)}")
    if (drawn := plot()) is not None and (not PLOT.exists() or PLOT.read_text() != drawn):
        PLOT.write_text(drawn)
        print(f"wrote {PLOT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
