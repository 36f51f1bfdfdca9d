"""The report of a run: a table, the survivors as diffs, and a JSON file."""

import dataclasses
import difflib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .operators import Mutant
from .runner import CAUGHT, HUNG, Result
from .workspace import CACHE, ROOT

__all__ = ["caught", "difference", "print_report", "record_counts", "write_report"]


def caught(results: Sequence[Result]) -> int:
    """Return how many mutants were detected."""
    return sum(result.outcome in (CAUGHT, HUNG) for result in results)


def difference(mutant: Mutant) -> str:
    """Return the change as a diff without context."""
    text = (ROOT / "src" / "fairlead" / mutant.module).read_bytes()
    before, after = text.decode().splitlines(), mutant.apply(text).decode().splitlines()
    lines = difflib.unified_diff(before, after, lineterm="", n=0)
    changed = [line for line in list(lines)[2:] if not line.startswith("@@")]
    return f"{mutant.module}:{mutant.line} ({mutant.operator})\n" + "\n".join(changed)


def print_report(results: Sequence[Result]) -> None:
    """Print survivors, then the outcomes by package and operator."""
    for result in results:
        if result.outcome not in (CAUGHT, HUNG):
            print(f"\n{result.outcome.upper()} {difference(result.mutant)}")
            shown = result.tests[:4]
            more = f" and {len(result.tests) - 4} more" if len(result.tests) > 4 else ""
            print(f"  {result.covering} tests execute it; ran {', '.join(shown) or 'none'}{more}")
    outcomes = Counter(result.outcome for result in results)
    print()
    for title, key in (
        ("package", lambda mutant: mutant.module.split("/")[0]),
        ("operator", lambda mutant: mutant.operator),
    ):
        print(f"{title:20} {'caught':>8} {'of':>5}")
        for name in sorted({key(result.mutant) for result in results}):
            mine = [result for result in results if key(result.mutant) == name]
            print(f"{name:20} {caught(mine):8} {len(mine):5}")
        print()
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"{caught(results)} of {len(results)} mutants caught ({counts})")


def record_counts(path: Path, results: Sequence[Result], settings: dict[str, object]) -> None:
    """Write how many were caught, in total and by package, for docs/evidence.md."""
    packages: dict[str, list[Result]] = {}
    for result in results:
        packages.setdefault(result.mutant.module.partition("/")[0], []).append(result)
    facts = {
        "seed": settings["seed"],
        "caught": caught(results),
        "count": len(results),
        "packages": {
            name: {"caught": caught(mine), "count": len(mine)}
            for name, mine in sorted(packages.items())
        },
    }
    path.write_text(json.dumps(facts, indent=1) + "\n")


def write_report(results: Sequence[Result], settings: dict[str, object]) -> None:
    """Write `.cache/mutants/latest.json`."""
    told = {
        **settings,
        "caught": caught(results),
        "count": len(results),
        "results": [
            {**dataclasses.asdict(result), "diff": difference(result.mutant)} for result in results
        ],
    }
    (CACHE / "latest.json").write_text(json.dumps(told, indent=1) + "\n")
