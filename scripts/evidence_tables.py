"""Tables for docs/evidence.md, from the result files that the recording commands write."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["BENCHMARKS", "EVIDENCE_TABLES"]

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "evidence"
BENCHMARKS = ROOT / "bench" / "results" / "latest.json"
_MISSING = "Not recorded yet.\n"

Tables = Mapping[str, Callable[[], str]]


def conformance_table() -> str:
    """Return the results of the official conformance suite for each tested role."""
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
    """Return the results of other projects' test suites, by connection path and era."""
    facts = _read(FOLDER / "interop.json")
    if facts is None:
        return _MISSING
    rows = [
        tuple(row[key] for key in ("suite", "path", "era", "same", "explained", "unexplained"))
        for row in facts["rows"]
    ]
    counts = _table(
        ("Suite", "Path", "Era", "Same outcome", "Explained difference", "Unexplained"), rows
    )
    reasons = _table(("Suite", "Path", "Era", "Tests", "Reason"), _reason_rows(facts["rows"]))
    return f"{counts}\nReasons at the endpoints that forward to one server:\n\n{reasons}"


def _reason_rows(rows: Iterable[Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """Return the reasons for differences on the paths that forward requests unchanged."""
    return [
        (row["suite"], row["path"], row["era"], count, reason)
        for row in rows
        if row["path"] in ("proxy", "gateway-name")
        for reason, count in row["reasons"].items()
    ]


def public_servers_table() -> str:
    """Return the numbers of equal and different responses of published servers behind the proxy."""
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
    """Return how many mutants the tests detect."""
    facts = _read(FOLDER / "mutants.json")
    if facts is None:
        return _MISSING
    rows = [(name, one["caught"], one["count"]) for name, one in facts["packages"].items()]
    total = ("all", facts["caught"], facts["count"])
    return f"Seed {facts['seed']}.\n\n" + _table(("Package", "Caught", "Of"), [*rows, total])


def chaos_table() -> str:
    """Return the outcomes of the chaos tests."""
    facts = _read(FOLDER / "chaos.json")
    if facts is None:
        return _MISSING
    rows = [(one["folder"], one["passed"], one["failed"], one["skipped"]) for one in facts]
    return _table(("Tests", "Passed", "Failed", "Skipped"), rows)


def attack_load_table() -> str:
    """Return the latencies of ordinary clients beside an attacking one."""
    facts = _read(FOLDER / "attack-load.json")
    return _MISSING if facts is None else _latencies(facts)


def token_flood_table() -> str:
    """Return the latencies of ordinary calls beside a flood of forged tokens."""
    facts = _read(FOLDER / "token-flood.json")
    if facts is None:
        return _MISSING
    return _latencies(facts) + (
        f"\nThe key set was fetched {facts['fetches']} times in {facts['seconds']} s, "
        f"at least {facts['seconds_between_fetches']} s apart.\n"
    )


def _latencies(facts: Mapping[str, Any]) -> str:
    rows = [
        (kind, f"{one['calls']:,}", one["p50_ms"], one["p99_ms"], one["per_second"])
        for kind, one in ((kind, facts[kind]) for kind in ("attack", "harmless"))
    ]
    head = ("Other client", "Ordinary calls", "p50 (ms)", "p99 (ms)", "Its messages per second")
    return _table(head, rows) + f"\nRatio of the 99th percentiles: {facts['ratio']}.\n"


def known_tokens_table() -> str:
    """Return the cost of signed tokens for a server."""
    facts = _read(FOLDER / "known-tokens.json")
    if facts is None:
        return _MISSING
    rows: list[tuple[object, ...]] = [
        (
            f"{what}, known JWT / static token",
            facts[kind]["median"],
            _middle(facts[f"{kind}_noise"]),
            "at least 0.95",
        )
        for what, kind in (("Calls per second", "wall"), ("Calls per CPU second", "cpu"))
    ]
    rows += [
        (f"First use of a token, {algorithm}", f"{cost} ms of CPU", "", "below 0.5 ms")
        for algorithm, cost in facts["first_use_ms"].items()
    ]
    return _table(("Measured", "Result", "Noise", "Target"), rows)


def _middle(one: Mapping[str, float]) -> str:
    return f"{one['low']:.2f}–{one['high']:.2f}"


def benchmarks_table() -> str:
    """Return every row of the last full run of the benchmarks."""
    facts = _read(BENCHMARKS)
    if facts is None:
        return _MISSING
    peers = [name for name in facts["runtimes"] if name != "fairlead"]
    rows = []
    for row in facts["rows"]:
        ratios = row["times_better"]
        others = [f"{name} {_times(ratio)}" for name, ratio in ratios.items() if name not in peers]
        rows.append(
            (
                row["case"],
                row["label"],
                row.get("cpus", ""),
                _figure(row),
                *(_times(ratios.get(peer)) for peer in peers),
                ", ".join(others),
                _noise(row),
            )
        )
    head = ("Case", "Row", "CPUs", "Fairlead", *peers, "Fairlead otherwise", "Noise")
    failed = [
        f"{name} in {row['case']}, {row['label']}"
        for row in facts["rows"]
        for name in row["failed"]
    ]
    missing = [*failed, *facts["skipped"]]
    note = f"\nNot measured: {'; '.join(missing)}.\n" if missing else ""
    return _run_facts(facts) + _table(head, rows) + note


def benchmarks_summary() -> str:
    """Return the rows of the last full run that the README quotes."""
    facts = _read(BENCHMARKS)
    if facts is None:
        return _MISSING
    found = {(row["case"], row["label"]): row for row in facts["rows"]}
    rows = []
    for place, title in _SUMMARY.items():
        if row := found.get(place):
            ratios = (row["times_better"].get(peer) for peer in _SUMMARY_PEERS)
            rows.append((title, _figure(row), *map(_times, ratios)))
    return _run_facts(facts) + _table(("", "Fairlead", *_SUMMARY_PEERS.values()), rows)


_SUMMARY_PEERS = {"mcp": "Python SDK", "fastmcp": "FastMCP", "typescript": "TypeScript SDK"}
_SUMMARY = {
    ("stdio-server-1", "50 B, one at a time"): "Server over stdio, one call at a time",
    ("stdio-server-1", "peers tuned"): "the same, the others on uvloop and without logs",
    ("stdio-server-64", "50 B, 64 in flight"): "Server over stdio, 64 calls in flight",
    ("http-server-1", "50 B, one at a time"): "Server over HTTP, one call at a time",
    ("http-server-64", "50 B, 64 in flight"): "Server over HTTP, 64 calls in flight",
    ("stdio-client-1", "50 B, one at a time"): "Client over stdio, one call at a time",
    ("startup", "ten tools, to tools/list"): "Start-up of a server with ten tools",
    ("memory", "ten tools, 100 calls"): "Memory of that server",
}


def reasons() -> str:
    """Return the three reasons to use Fairlead that the README gives, with their figures."""
    facts, conformance = _read(BENCHMARKS), _read(FOLDER / "conformance.json")
    servers = _read(FOLDER / "public-servers.json")
    if facts is None or conformance is None or servers is None:
        return _MISSING
    found = {(row["case"], row["label"]): row["times_better"] for row in facts["rows"]}

    def times(case: str, label: str, peer: str) -> str:
        return f"{found[case, label][peer]['median']:.2g}"

    stdio = "stdio-server-1", "50 B, one at a time"
    startup = "startup", "ten tools, to tools/list"
    memory = "memory", "ten tools, 100 calls"
    checks = list(conformance["legs"].values())
    compared = {row["server"] for row in servers if "same" in row}
    same = compared - {row["server"] for row in servers if row.get("different")}
    return (
        "* **Speed.** A server answers "
        f"{times(*stdio, 'mcp')} times as many calls per second over stdio as one on the Python "
        f"SDK and {times(*stdio, 'fastmcp')} times as many as one on FastMCP. It starts "
        f"{times(*startup, 'mcp')} and {times(*startup, 'fastmcp')} times as fast; the "
        f"others need {times(*memory, 'mcp')} and {times(*memory, 'fastmcp')} times its memory.\n"
        "* **Both eras of the protocol.** One handler serves clients with and without a "
        "handshake, and a relay connects clients and servers of different eras. "
        f"{sum(counts.get('ok', 0) for counts in checks)} checks of the official conformance "
        f"suite pass, {sum(counts.get('FAIL', 0) for counts in checks)} fail, and "
        f"{sum(counts.get('not yet', 0) for counts in checks)} are "
        "[listed as unsupported](docs/evidence.md#conformance), each with its reason; "
        f"{len(same)} of {len(compared)} published servers give the same results behind the "
        "proxy.\n"
        "* **Gateway, rules and recordings included.** One package manages the servers on your "
        "machine, merges them at one URL, applies rules, and records and replays traffic. "
        f"The gateway forwards {times('gateway', 'session, one at a time', 'fastmcp')} times as "
        "many calls per second as FastMCP's.\n"
    )


def _run_facts(facts: Mapping[str, Any]) -> str:
    """Return a paragraph with the time, machine and noise of a run."""
    machine = facts["machine"]
    node = f", Node {machine['node']}" if machine.get("node") else ""
    versions = ", ".join(f"{name} {version}" for name, version in facts["runtimes"].items())
    parts = [f"{machine['cores']} cores ({machine['cpu']}), {machine['python']}{node}; {versions}."]
    if facts.get("date"):
        parts.insert(0, f"Run of {facts['date']} at commit `{facts['commit']}`:")
    if noise := facts.get("noise"):
        parts.append(
            f"Noise: Fairlead, measured twice in the same rounds, differs from itself by "
            f"{noise['median_percent']:.2g} % in the median of {noise['rows']} rows."
        )
    if facts.get("settings"):
        parts.append(facts["settings"])
    return "\n".join(parts) + "\n\n"


def _times(ratio: Mapping[str, float | None] | None) -> str:
    if ratio is None or ratio["median"] is None:
        return ""
    return f"{ratio['median']:.3g}×"


def _noise(row: Mapping[str, Any]) -> str:
    """Return the interquartile range of Fairlead measured against itself, or the absolute
    difference.
    """
    noise = row.get("noise")
    if noise is None:
        return ""
    if "difference" in noise:
        return f"± {noise['difference']:.2g} {row['unit']}"
    return f"{noise['low']:.2f}–{noise['high']:.2f}"


def _figure(row: Mapping[str, Any]) -> str:
    """Return Fairlead's median in a row with its unit."""
    if "fairlead" not in row["runtimes"]:
        return ""
    value, unit = row["runtimes"]["fairlead"]["median"], row["unit"]
    return f"{value:,.0f}/s" if unit == "calls/s" else f"{value:.3g} {unit}"


EVIDENCE_TABLES: Tables = {
    "conformance": conformance_table,
    "interop": interop_table,
    "public-servers": public_servers_table,
    "mutants": mutants_table,
    "chaos": chaos_table,
    "attack-load": attack_load_table,
    "token-flood": token_flood_table,
    "known-tokens": known_tokens_table,
    "benchmarks": benchmarks_table,
    "benchmarks-summary": benchmarks_summary,
    "reasons": reasons,
}


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"
