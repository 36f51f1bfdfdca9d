"""Run the suites of other SDKs directly and through Fairlead, and compare (`make interop-suites`).

The tests of the official Python SDK and of FastMCP come from their source distributions. Their
in-memory connections are replaced by real sockets (`adapters/`); nothing else is changed. The same
tests run on each path and in each era, and every outcome must equal that of the direct connection,
except where a file in `expected/` gives a reason.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite_cache import CACHE, Unavailable, environment, source
from suite_results import Expected, Malformed, Verdict, judge

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
LATEST = CACHE / "latest.json"
PATHS = ("direct", "proxy", "gateway-name", "gateway")
ERAS = ("handshake", "stateless")
SMOKE = 6  # number of tests in the run that starts the real `fairlead` command
RETRIES = 2  # reruns of tests with unexpected outcomes
HARD_LIMIT = 60  # seconds after which pytest ends a test that its event loop could not end


@dataclass(frozen=True)
class Suite:
    """The tests of an SDK, and the options that pytest needs for them."""

    name: str
    package: str
    version: str
    adapter: str
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()


SUITES = {
    "python-sdk": Suite(
        "python-sdk",
        *("mcp", "2.3.0", "adapters.python_sdk"),
        ("tests/interaction/lowlevel", "tests/interaction/mcpserver"),
        ("-p", "no:asyncio", "-o", "log_cli=false"),  # the tests use the anyio plugin
    ),
    "fastmcp": Suite(
        "fastmcp",
        *("fastmcp", "4.1.2", "adapters.fastmcp"),
        # Folders whose tests connect clients to server objects; others are not about MCP calls.
        (
            "tests/client/client",
            "tests/client/group",
            *(f"tests/client/test_{name}.py" for name in (
                "client_extensions", "elicitation", "elicitation_enums", "logs", "notifications",
                "progress", "result_hydration", "roots", "sampling",
            )),
            "tests/server/middleware",
            "tests/server/mount",
            *(f"tests/server/test_{name}.py" for name in (
                "app_state", "cache_hints", "call_arguments", "completions", "context",
                "dependencies", "dependencies_advanced", "extension_runtime", "extensions", "icons",
                "input_validation", "log_level", "logging", "mrtr_guards", "mrtr_guards_components",
                "pagination", "protocol_eras", "providers", "server", "session_visibility",
                "sessions", "tool_annotations", "tool_transformation",
            )),
            "tests/tools",
            "tests/resources",
            "tests/prompts",
        ),
        ("-m", "not integration and not client_process and not subprocess_heavy"),
    ),
}  # fmt: skip

Outcomes = dict[str, dict[str, Any]]  # results by test id


@dataclass
class Measured:
    """Outcomes of a suite on one path."""

    suite: Suite
    path: str
    era: str
    outcomes: Outcomes
    missing: list[str]  # tests that ran on the direct path but not on this path
    seconds: float


class Run:
    """One run: its tests, interpreter and number of processes."""

    def __init__(self, python: Path, options: argparse.Namespace) -> None:
        self._python = python
        self._options = options
        self._slots = threading.Semaphore(options.jobs)
        self._progress = Progress()
        self._folder = CACHE / "runs"
        self._folder.mkdir(parents=True, exist_ok=True)

    def suite(self, suite: Suite, era: str) -> list["Measured"]:
        """Run a suite in one era on the requested paths, the direct path first."""
        direct = self._measure(suite, "direct", era, None)
        paths = [path for path in self._options.path or PATHS if path != "direct"]
        if not self._options.path and suite.name == "python-sdk":
            paths.append("command")
        with ThreadPoolExecutor(len(paths) or 1) as pool:
            others = pool.map(lambda path: self._measure(suite, path, era, direct.outcomes), paths)
            return [direct, *others]

    def _measure(self, suite: Suite, path: str, era: str, direct: Outcomes | None) -> "Measured":
        began = time.monotonic()
        only: Iterable[str] | None = direct
        if path == "command" and direct is not None:
            only = [test for test, entry in direct.items() if entry["outcome"] == "passed"]
            only = only[:: max(1, len(only) // SMOKE)]
        outcomes = self._outcomes(suite, path, era, only)
        missing = sorted(set(only or ()) - outcomes.keys())
        return Measured(suite, path, era, outcomes, missing, time.monotonic() - began)

    def rows(self, measured: list["Measured"]) -> list[dict[str, Any]]:
        """Judge the paths of one suite and era in order, the direct path first."""
        rows: list[dict[str, Any]] = []
        direct: Outcomes | None = None
        for one in measured:
            rows.append(self._settle(one, direct))
            direct = one.outcomes if direct is None else direct
        return rows

    def _settle(self, one: "Measured", direct: Outcomes | None) -> dict[str, Any]:
        """Rerun tests with a wrong outcome, because a busy machine may have caused it."""
        # The real command is compared with the expectations of the proxy.
        listed = "proxy" if one.path == "command" else one.path
        expected = Expected.read(EXPECTED / f"{one.suite.name}.{listed}.{one.era}.txt")
        began, first = time.monotonic(), _words(one.outcomes)
        baseline = _words(direct) if direct is not None else dict.fromkeys(first, "passed")
        verdict = judge(first, baseline, expected)
        for _ in range(RETRIES):
            if verdict.wrong:
                again = self._outcomes(one.suite, one.path, one.era, verdict.wrong, again=True)
                one.outcomes |= again
                verdict = judge(_words(one.outcomes), baseline, expected)
        row = _row(one, verdict)
        row["unsteady"] = [
            test for test, word in _words(one.outcomes).items() if word != first[test]
        ]
        row["seconds"] = round(one.seconds + time.monotonic() - began, 1)
        if not self._options.sample and one.path != "command":
            row["unknown"] = expected.unknown(one.outcomes)
        _print_row(row)
        return row

    def _outcomes(
        self, suite: Suite, path: str, era: str, only: Iterable[str] | None, *, again: bool = False
    ) -> Outcomes:
        """Run pytest in the suite's folder, and return the tests that used a connection."""
        name = f"{suite.name}.{path}.{era}{'.again' if again else ''}"
        results, log = self._folder / f"{name}.jsonl", self._folder / f"{name}.log"
        results.unlink(missing_ok=True)
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(HERE), str(HERE.parent / "support"))),
            "SUITE_PATH": path,
            "SUITE_ERA": era,
            "SUITE_RESULTS": str(results),
        }
        files: Iterable[str] = suite.tests
        if only is not None:
            chosen = sorted(only)
            (self._folder / f"{name}.ids").write_text("\n".join(chosen), encoding="utf-8")
            env["SUITE_ONLY"] = str(self._folder / f"{name}.ids")
            files = sorted({test.partition("::")[0] for test in chosen})
        elif self._options.sample:
            env["SUITE_SAMPLE"] = str(self._options.sample)
            env["SUITE_SEED"] = str(self._options.seed)
        command = [str(self._python), "-m", "pytest", "-q", "--tb=short", "--color=no"]
        command += ["-p", "no:fairlead", "-p", "no:cacheprovider", "-p", "adapters.plugin"]
        command += ["-p", suite.adapter, *suite.options, f"--timeout={HARD_LIMIT}"]
        command += files
        home = source(suite.package, suite.version)
        with self._slots, open(log, "w", encoding="utf-8") as output:
            with subprocess.Popen(
                command, cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            ) as process:
                self._progress.follow(name, process, results)
        outcomes = _read(results)
        if process.returncode not in (0, 1) or not outcomes:
            tail = log.read_text(encoding="utf-8")[-2000:]
            raise SystemExit(f"{name}: pytest ended with {process.returncode}\n{tail}\n{log}")
        return {test: entry for test, entry in outcomes.items() if entry["connected"]}


class Progress:
    """A line on the terminal with the progress of the running processes."""

    def __init__(self) -> None:
        self._running: dict[str, str] = {}

    def follow(self, name: str, process: "subprocess.Popen[bytes]", results: Path) -> None:
        """Wait for pytest to end."""
        while True:
            try:
                process.wait(1.0)
                break
            except subprocess.TimeoutExpired:
                self._running[name] = _counted(results)
                self._show(", ".join(f"{one}: {done}" for one, done in [*self._running.items()]))
        self._running.pop(name, None)
        self._show("")

    def _show(self, text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{text}")


def _counted(results: Path) -> str:
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    if not lines:
        return "collecting"
    total, *lines = lines
    return f"{len(lines)}/{json.loads(total)['collected']}"


def _read(results: Path) -> Outcomes:
    if not results.exists():
        return {}
    lines = results.read_text(encoding="utf-8").splitlines()
    return {entry["id"]: entry for entry in map(json.loads, lines) if "id" in entry}


def _words(outcomes: Outcomes) -> dict[str, str]:
    """Return the outcome of each test; an expected failure counts as passed."""
    same = {"xfailed": "passed"}
    return {test: same.get(one["outcome"], one["outcome"]) for test, one in outcomes.items()}


def _row(one: Measured, verdict: Verdict) -> dict[str, Any]:
    return {
        "suite": one.suite.name,
        "path": one.path,
        "era": one.era,
        "same": len(verdict.same),
        "explained": Counter(verdict.explained.values()),
        "unexplained": {test: one.outcomes[test].get("why", "") for test in verdict.unexplained},
        "stale": verdict.stale,
        "missing": one.missing,
        "unknown": [],
    }


def _failed(row: Mapping[str, Any]) -> bool:
    return bool(row["unexplained"] or row["stale"] or row["unknown"] or row["missing"])


def _print_header() -> None:
    print(
        f"{'suite':<11} {'path':<13} {'era':<10} {'same':>5} {'explained':>9} {'unexplained':>11} "
        f"{'stale':>5} {'unsteady':>8} {'seconds':>7}",
        flush=True,
    )


def _print_row(row: Mapping[str, Any]) -> None:
    print(
        f"{row['suite']:<11} {row['path']:<13} {row['era']:<10} {row['same']:>5} "
        f"{sum(row['explained'].values()):>9} {len(row['unexplained']):>11} "
        f"{len(row['stale']):>5} {len(row['unsteady']):>8} {row['seconds']:>7}",
        flush=True,
    )


def _print_details(row: Mapping[str, Any]) -> None:
    where = f"{row['suite']} {row['path']} {row['era']}"
    for test, why in row["unexplained"].items():
        print(f"FAIL {where}: {test}\n     {why}")
    for what, text in (
        ("stale", "is listed as different but has the same outcome"),
        ("unknown", "is listed but matches no test"),
        ("missing", "was not run"),
    ):
        for test in row[what]:
            print(f"FAIL {where}: {test} {text}")


def _record(path: Path, summary: Mapping[str, Any]) -> None:
    """Write the counts and reasons to a file for the evidence page."""
    facts = {"sample": summary["sample"], "seed": summary["seed"]}
    rows = [
        {
            **{key: row[key] for key in ("suite", "path", "era", "same")},
            "explained": sum(row["explained"].values()),
            "unexplained": len(row["unexplained"]),
            "reasons": dict(sorted(row["explained"].items())),
        }
        for row in summary["rows"]
    ]
    path.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def _typescript() -> dict[str, Any]:
    """Return why the TypeScript SDK's tests are not run; they need a source checkout."""
    checkout = os.environ.get("TYPESCRIPT_SDK")
    if not checkout:
        return {"skipped": "its packages contain no tests; set TYPESCRIPT_SDK to a checkout"}
    return {"failed": f"no adapter exists for the tests in {checkout}"}


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    began = time.monotonic()
    names = options.suite or [*SUITES, "typescript"]
    try:
        python = environment() if set(names) & SUITES.keys() else Path(sys.executable)
        for suite in SUITES.values():
            if suite.name in names:
                source(suite.package, suite.version)
    except Unavailable as exc:
        print(f"the suites were not run: {exc}")
        return 1 if os.environ.get("CI") == "true" else 0
    if options.sample:
        print(f"a sample of {options.sample} tests per suite and era, --seed {options.seed}")
    rows: list[dict[str, Any]] = []
    extra: dict[str, Any] = {}
    run = Run(python, options)
    eras = options.era or ERAS
    try:
        pairs = [(SUITES[name], era) for name in names if name in SUITES for era in eras]
        with ThreadPoolExecutor(len(pairs) or 1) as pool:
            measured = [*pool.map(lambda pair: run.suite(*pair), pairs)]
        _print_header()
        for some in measured:
            rows += run.rows(some)
        if "typescript" in names:
            extra["typescript"] = _typescript()
            print(*(f"typescript  {what}: {why}" for what, why in extra["typescript"].items()))
    except Malformed as exc:
        print(f"FAIL {exc}")
        return 1
    seconds = round(time.monotonic() - began, 1)
    seed = options.seed if options.sample else None
    summary = {"sample": options.sample, "seed": seed, "seconds": seconds, "rows": rows, **extra}
    LATEST.write_text(json.dumps(summary, indent=1), encoding="utf-8")
    if options.record:
        _record(options.record, summary)
    for row in rows:
        _print_details(row)
    failed = sum(map(_failed, rows)) + bool(extra.get("typescript", {}).get("failed"))
    print(f"{'FAILED' if failed else 'ok'} in {seconds:.0f} s; details: {LATEST}")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--suite", action="append", choices=(*SUITES, "typescript"))
    parser.add_argument("--path", action="append", choices=(*PATHS, "command"))
    parser.add_argument("--era", action="append", choices=ERAS)
    parser.add_argument(
        "--sample", type=int, default=0, metavar="N", help="run only N tests of each suite and era"
    )
    parser.add_argument("--seed", type=int, default=20260728, help="seed of the sample")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write the counts and reasons to FILE"
    )
    # one process more than processors, because failing tests mostly wait
    jobs = (os.cpu_count() or 1) + 1
    parser.add_argument("--jobs", type=int, default=jobs, help=f"processes (default: {jobs})")
    return parser


if __name__ == "__main__":
    sys.exit(main())
