"""Runs the official conformance suite against our server and our client, and takes it strictly.

    make conformance                          # everything
    make conformance ARGS="--only 'caching'"  # scenarios whose names match

Stricter than the suite itself: warnings fail, checks that were skipped fail, and so do scenarios
that the suite only reports. What we do not do yet stands in `expected-failures.txt`; an entry there
that passes fails the run too, so that the list only shrinks.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from fixture import NotStarted, serving
from suite import REVISIONS, VERSION, Check, Suite, Unavailable

HERE = Path(__file__).parent
CLIENT = HERE / "client.py"
EXPECTED = HERE / "expected-failures.txt"
AT_ONCE = 2  # clients


@dataclass
class Scenario:
    """One scenario of a leg; of a revision, or of none."""

    leg: str
    name: str
    revision: str | None
    how: str = ""  # the server was started, if not as usual

    def __str__(self) -> str:
        return f"{self.leg} {self.revision or 'extensions'} {self.name} {self.how}"


class Expected:
    """What is known to fail, and what is known to be skipped."""

    def __init__(self, file: Path) -> None:
        self._known: dict[tuple[str, ...], bool] = {}  # by leg, scenario and check: was it met?
        for line in file.read_text().splitlines():
            if fields := line.partition("#")[0].split():
                self._known[tuple(fields)] = False

    def failure(self, scenario: Scenario) -> bool:
        """Whether a scenario is listed, in every revision or in this one."""
        return any(
            self._met(scenario.leg, name)
            for name in (scenario.name, f"{scenario.name}@{scenario.revision}")
        )

    def skip(self, scenario: Scenario, check: Check) -> bool:
        return self._met(scenario.leg, scenario.name, str(check["name"]))

    def _met(self, *entry: str) -> bool:
        if entry not in self._known:
            return False
        self._known[entry] = True
        return True

    def unmet(self, legs: set[str]) -> list[str]:
        """Entries that nothing in these legs had to do with."""
        return [" ".join(e) for e, met in self._known.items() if not met and e[0] in legs]


class Report:
    """Prints one line per scenario, and counts."""

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self.counts: Counter[str] = Counter()

    def add(self, scenario: Scenario, checks: list[Check], said: str = "") -> None:
        problems = list(self._problems(scenario, checks, said))
        listed = self._expected.failure(scenario)
        if listed and problems:
            self._line("not yet", scenario, problems[0])
        elif listed:
            self._line("FAIL", scenario, f"passes: take it out of {EXPECTED.name}")
        elif problems:
            self._line("FAIL", scenario, problems[0])
            for problem in problems[1:]:
                print(f"{'':8} {problem}", flush=True)
        else:
            self._line("ok", scenario, f"{len(checks)} checks")

    def _line(self, verdict: str, scenario: Scenario, note: str) -> None:
        self.counts[verdict] += 1
        print(f"{verdict:8} {scenario!s:66} {note}", flush=True)

    def _problems(self, scenario: Scenario, checks: list[Check], said: str) -> Iterator[str]:
        for check in checks:
            status = check["status"]
            skipped = status == "SKIPPED" and not self._expected.skip(scenario, check)
            if skipped or status in ("FAILURE", "WARNING"):
                why = check.get("errorMessage") or check.get("description") or ""
                yield f"{status} {check['name']}: {' '.join(why.split())[:160]}"
        if not any(c["status"] == "SUCCESS" and c["id"] != "wire-schema-valid" for c in checks):
            yield "nothing was checked" if checks else f"no result: {said.strip()[-300:]}"
        yield from re.findall(r"CLIENT EXITED WITH ERROR.*|Client timed out.*", said)


class Run:
    """All scenarios that were asked for."""

    def __init__(self, suite: Suite, report: Report, only: list[str], results: Path) -> None:
        self._suite = suite
        self._report = report
        self._only = only
        self._results = results

    def server(self, url: str) -> None:
        """Everything that concerns servers."""
        for revision in REVISIONS:
            self.revision(url, revision)
        for scenario in self._scenarios("server", None):
            self._one(scenario, url)

    def revision(self, url: str, revision: str, how: str = "") -> None:
        """All server scenarios of a revision, or those that were asked for."""
        scenarios = self._scenarios("server", revision, how)
        if self._only:
            for scenario in scenarios:
                self._one(scenario, url)
            return
        found, said = self._suite.run_all(url, revision, self._place("server", revision, how))
        for scenario in scenarios:
            self._report.add(scenario, found.get(scenario.name, []), said)

    def client(self, command: str) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for revision in (*REVISIONS, None):
                scenarios = self._scenarios("client", revision)
                runs = [pool.submit(self._checks, scenario, command) for scenario in scenarios]
                for scenario, run in zip(scenarios, runs, strict=True):
                    self._report.add(scenario, *run.result())

    def _scenarios(self, leg: str, revision: str | None, how: str = "") -> list[Scenario]:
        suite = self._suite
        names = suite.outside(leg) if revision is None else suite.required(leg, revision)
        return [Scenario(leg, name, revision, how) for name in names if self._wanted(name)]

    def _wanted(self, name: str) -> bool:
        return not self._only or any(fnmatchcase(name, pattern) for pattern in self._only)

    def _one(self, scenario: Scenario, target: str) -> None:
        self._report.add(scenario, *self._checks(scenario, target))

    def _checks(self, scenario: Scenario, target: str) -> tuple[list[Check], str]:
        place = self._place(scenario.leg, scenario.revision, scenario.how)
        place /= scenario.name.replace("/", "_")
        return self._suite.run_one(scenario.leg, target, scenario.name, scenario.revision, place)

    def _place(self, leg: str, revision: str | None, how: str) -> Path:
        return self._results / leg / f"{revision or 'extensions'}{how}"


def main() -> int:
    arguments = _parser().parse_args()
    began = time.monotonic()
    try:
        suite = Suite()
    except Unavailable as exc:
        print(f"the conformance suite was not run: {exc}")
        return 1 if os.environ.get("CI") == "true" else 0
    legs = {arguments.leg} if arguments.leg else {"server", "client"}
    if "client" in legs and not CLIENT.exists():
        print(f"the client is not tested: there is no {CLIENT.name} yet")
        legs.discard("client")
    expected = Expected(EXPECTED)
    report = Report(expected)
    results = Path(tempfile.mkdtemp(prefix="conformance-"))
    run = Run(suite, report, arguments.only, results)
    if arguments.url and "server" in legs:
        run.server(arguments.url)
    elif "server" in legs:
        try:
            with serving() as url:
                run.server(url)
            # Answers are plain JSON wherever they can be; all of them as streams, too.
            with serving("--answers", "sse") as url:
                run.revision(url, REVISIONS[0], "(streams)")
        except NotStarted as exc:
            report.counts["FAIL"] += 1
            print(f"FAIL     our server did not start: {exc}")
    if "client" in legs:
        run.client(f"{sys.executable} {CLIENT}")
    stale = [] if arguments.only else expected.unmet(legs)
    for entry in stale:
        print(f"FAIL     {EXPECTED.name}: {entry!r} fits nothing that was run")
    failed = report.counts["FAIL"] + len(stale)
    print(
        f"\nconformance {VERSION}: {report.counts['ok']} ok, {failed} failed, "
        f"{report.counts['not yet']} not yet, in {time.monotonic() - began:.0f} s"
    )
    if failed or not report.counts:
        print(f"details: {results}")
        return 1
    shutil.rmtree(results)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run the official conformance suite.")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="may have * in it")
    parser.add_argument("--leg", choices=("server", "client"), help="one of the two")
    parser.add_argument("--url", help="a server that runs already, e.g. behind a gateway")
    return parser


if __name__ == "__main__":
    sys.exit(main())
