"""The figures on the page of evidence: read from `evidence/`, where the commands write them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["EVIDENCE_TABLES"]

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "evidence"
BENCHMARKS = ROOT / "bench" / "results" / "latest.json"
_MISSING = "Not recorded yet.\n"

Tables = Mapping[str, Callable[[], str]]


def conformance_table() -> str:
    """Return the verdicts of the official conformance suite by leg."""
    facts = _read(FOLDER / "conformance.json")
    if facts is None:
        return _MISSING
    rows = [
        (leg, counts.get("ok", 0), counts.get("FAIL", 0), counts.get("not yet", 0))
        for leg, counts in facts["legs"].items()
    ]
    total = ("all", *(sum(row[column] for row in rows) for column in (1, 2, 3)))
    return f"Suite {facts['suite']}.\n\n" + _table(
        ("Leg", "Passed", "Failed", "Not supported yet"), [*rows, total]
    )


def interop_table() -> str:
    """Return how the suites of other projects came out, by path and era."""
    facts = _read(FOLDER / "interop.json")
    if facts is None:
        return _MISSING
    rows = [
        tuple(row[key] for key in ("suite", "path", "era", "same", "explained", "unexplained"))
        for row in facts["rows"]
    ]
    return _table(
        ("Suite", "Path", "Era", "Same outcome", "Explained difference", "Unexplained"), rows
    )


def public_servers_table() -> str:
    """Return how published servers answer behind the proxy."""
    facts = _read(FOLDER / "public-servers.json")
    if facts is None:
        return _MISSING
    compared = [row for row in facts if "same" in row]
    rows = [
        (row["server"], row["era"], row["same"], row["explained"], row["different"])
        for row in compared
    ]
    left_out = len({row["server"] for row in facts} - {row["server"] for row in compared})
    note = f"\n{left_out} servers could not be started where this was recorded.\n"
    return _table(("Server", "Era", "Same", "Explained", "Different"), rows) + note * bool(left_out)


def mutants_table() -> str:
    """Return how many changed lines the tests notice."""
    facts = _read(FOLDER / "mutants.json")
    if facts is None:
        return _MISSING
    rows = [(name, one["caught"], one["count"]) for name, one in facts["packages"].items()]
    total = ("all", facts["caught"], facts["count"])
    return f"Seed {facts['seed']}.\n\n" + _table(("Package", "Caught", "Of"), [*rows, total])


def chaos_table() -> str:
    """Return the counts of the tests that break things on purpose."""
    facts = _read(FOLDER / "chaos.json")
    if facts is None:
        return _MISSING
    rows = [(one["folder"], one["passed"], one["failed"], one["skipped"]) for one in facts]
    return _table(("Tests", "Passed", "Failed", "Skipped"), rows)


def attack_load_table() -> str:
    """Return what ordinary clients notice of an attacking one."""
    facts = _read(FOLDER / "attack-load.json")
    if facts is None:
        return _MISSING
    rows = [
        (kind, f"{one['calls']:,}", one["p50_ms"], one["p99_ms"], one["per_second"])
        for kind, one in ((kind, facts[kind]) for kind in ("attack", "harmless"))
    ]
    head = ("Other client", "Ordinary calls", "p50 (ms)", "p99 (ms)", "Its messages per second")
    return _table(head, rows) + f"\nRatio of the 99th percentiles: {facts['ratio']}.\n"


def benchmarks_table() -> str:
    """Return how many times better Fairlead is than each peer."""
    facts = _read(BENCHMARKS)
    if facts is None:
        return _MISSING
    peers = [name for name in facts["runtimes"] if name != "fairlead"]
    rows = []
    for row in facts["rows"]:
        ratios = row.get("times_better", {})
        if ratios:
            cells = (f"{ratios[peer]['median']:.3g}×" if peer in ratios else "" for peer in peers)
            rows.append((row["case"], row["label"], *cells))
    machine = facts["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["runtimes"].items())
    where = f"{machine['cores']} cores ({machine['cpu']}), {machine['python']}; {versions}.\n\n"
    return where + _table(("Case", "Row", *peers), rows)


EVIDENCE_TABLES: Tables = {
    "conformance": conformance_table,
    "interop": interop_table,
    "public-servers": public_servers_table,
    "mutants": mutants_table,
    "chaos": chaos_table,
    "attack-load": attack_load_table,
    "benchmarks": benchmarks_table,
}


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"
