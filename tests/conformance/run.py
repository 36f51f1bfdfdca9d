"""Run the official conformance suite with Fairlead's server, client and relay.

    make conformance                          # everything
    make conformance ARGS="--only 'caching'"  # scenarios whose names match
    make conformance ARGS="--leg relay"       # servers behind a relay

The run is stricter than the suite itself: warnings and skipped checks fail, and so do scenarios
that the suite only reports. Unsupported scenarios are listed in `expected-failures.txt`; an entry
there that passes also fails the run, so that the list only shrinks. Scenarios that cannot pass
through a relay are listed in `expected-failures-relay.txt`.
"""

import argparse
import json
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

import official
from fixture import OFFICIAL, SERVER, NotStarted, relaying, serving, started
from suite import REVISIONS, VERSION, Check, Suite, Unavailable

HERE = Path(__file__).parent
CLIENT = HERE / "client.py"
EXPECTED = HERE / "expected-failures.txt"
EXPECTED_OF_RELAYS = HERE / "expected-failures-relay.txt"
AT_ONCE = 2  # number of concurrent clients


@dataclass
class Scenario:
    """A scenario of one leg and one revision; extension scenarios have no revision."""

    leg: str
    name: str
    revision: str | None
    how: str = ""  # how the server was started, if not in the default way
    way: str = ""  # the connection from the relay to the server, if there is a relay

    def __str__(self) -> str:
        return f"{self.way or self.leg} {self.revision or 'extensions'} {self.name} {self.how}"


class Expected:
    """Expected failures of whole scenarios and of single checks."""

    def __init__(self, *files: Path) -> None:
        # The keys are leg, scenario and check; the value is True once the failure has occurred.
        self._known: dict[tuple[str, ...], bool] = {}
        for line in "\n".join(file.read_text() for file in files).splitlines():
            if fields := line.partition("#")[0].split():
                self._known[tuple(fields)] = False

    def failure(self, scenario: Scenario) -> bool:
        """Return True if a scenario is listed for all revisions or for this revision.

        Expected failures of the server also apply to the server behind a relay.
        """
        return any(
            self._met(where, name)
            for where in (scenario.leg, scenario.way)
            for name in (scenario.name, f"{scenario.name}@{scenario.revision}")
        )

    def check(self, scenario: Scenario, check: Check) -> bool:
        """Return True if a single check of a scenario is listed."""
        where = (scenario.leg, scenario.way)
        return any(self._met(leg, scenario.name, str(check["name"])) for leg in where)

    def _met(self, *entry: str) -> bool:
        if entry not in self._known:
            return False
        self._known[entry] = True
        return True

    def unmet(self, legs: set[str]) -> list[str]:
        """Return the entries for the given legs whose failures did not occur."""
        return [" ".join(e) for e, met in self._known.items() if not met and e[0] in legs]


class Report:
    """A report with one line per scenario, and counts."""

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self.counts: Counter[str] = Counter()
        self.by_leg: dict[str, Counter[str]] = {}

    def add(self, scenario: Scenario, checks: list[Check], said: str = "") -> None:
        problems = list(self._problems(scenario, checks, said))
        listed = self._expected.failure(scenario)
        if listed and problems:
            self._line("not yet", scenario, problems[0])
        elif listed:
            self._line("FAIL", scenario, "passes: remove it from the expected failures")
        elif problems:
            self._line("FAIL", scenario, problems[0])
            for problem in problems[1:]:
                print(f"{'':8} {problem}", flush=True)
        else:
            self._line("ok", scenario, f"{len(checks)} checks")

    def _line(self, verdict: str, scenario: Scenario, note: str) -> None:
        self.counts[verdict] += 1
        self.by_leg.setdefault(scenario.way or scenario.leg, Counter())[verdict] += 1
        print(f"{verdict:8} {scenario!s:66} {note}", flush=True)

    def _problems(self, scenario: Scenario, checks: list[Check], said: str) -> Iterator[str]:
        for check in checks:
            status = check["status"]
            bad = status in ("FAILURE", "WARNING", "SKIPPED")
            if bad and not self._expected.check(scenario, check):
                why = check.get("errorMessage") or check.get("description") or ""
                yield f"{status} {check['name']}: {' '.join(why.split())[:160]}"
        if not any(c["status"] == "SUCCESS" and c["id"] != "wire-schema-valid" for c in checks):
            yield "no check passed" if checks else f"no result: {said.strip()[-300:]}"
        yield from re.findall(r"CLIENT EXITED WITH ERROR.*|Client timed out.*", said)


class Run:
    """All requested scenarios."""

    def __init__(self, suite: Suite, report: Report, only: list[str], results: Path) -> None:
        self._suite = suite
        self._report = report
        self._only = only
        self._results = results
        self.legs: set[str] = set()  # the legs that were run

    def server(self, url: str) -> None:
        """Run all scenarios for servers."""
        for revision in REVISIONS:
            self.revision(url, revision)
        for scenario in self._scenarios("server", None):
            self._one(scenario, url)

    def relays(self) -> None:
        """Run server scenarios behind a relay: in both eras, over stdio, and with the official SDK.

        Raises:
            NotStarted: One of the programs did not start.
            official.Unavailable: The server of the official SDK cannot be downloaded.
        """
        handshake, stateless = REVISIONS
        with serving() as url:
            with relaying(url) as through:
                self.revisions(through, "relay")
            with relaying("--answers", "sse", url) as through:
                self.revision(through, handshake, "(streams)", "relay-streams")
            with relaying("--era", "stateless", url) as through:
                self.revision(through, handshake, way="relay-to-stateless")
            with relaying("--era", "handshake", url) as through:
                self.revision(through, stateless, way="relay-to-handshake")
            with relaying("--gateway", url) as through:
                self.revisions(through, "gateway")
        with relaying(sys.executable, str(SERVER), "--stdio") as through:
            self.revisions(through, "relay-stdio")
        official.fetched()
        with started(OFFICIAL) as url, relaying(url) as through:
            self.revisions(through, "relay-official")

    def revisions(self, url: str, way: str) -> None:
        for revision in REVISIONS:
            self.revision(url, revision, way=way)

    def revision(self, url: str, revision: str, how: str = "", way: str = "") -> None:
        """Run all server scenarios of a revision, or the requested ones."""
        self.legs.add(way or "server")
        scenarios = self._scenarios("server", revision, how, way)
        if self._only:
            for scenario in scenarios:
                self._one(scenario, url)
            return
        place = self._place(way or "server", revision, how)
        found, said = self._suite.run_all(url, revision, place)
        for scenario in scenarios:
            self._report.add(scenario, found.get(scenario.name, []), said)

    def client(self, command: str) -> None:
        self.legs.add("client")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for revision in (*REVISIONS, None):
                scenarios = self._scenarios("client", revision)
                runs = [pool.submit(self._checks, scenario, command) for scenario in scenarios]
                for scenario, run in zip(scenarios, runs, strict=True):
                    self._report.add(scenario, *run.result())

    def _scenarios(
        self, leg: str, revision: str | None, how: str = "", way: str = ""
    ) -> list[Scenario]:
        suite = self._suite
        names = suite.outside(leg) if revision is None else suite.required(leg, revision)
        return [Scenario(leg, name, revision, how, way) for name in names if self._wanted(name)]

    def _wanted(self, name: str) -> bool:
        return not self._only or any(fnmatchcase(name, pattern) for pattern in self._only)

    def _one(self, scenario: Scenario, target: str) -> None:
        self._report.add(scenario, *self._checks(scenario, target))

    def _checks(self, scenario: Scenario, target: str) -> tuple[list[Check], str]:
        place = self._place(scenario.way or scenario.leg, scenario.revision, scenario.how)
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
    legs = {arguments.leg} if arguments.leg else {"server", "client", "relay"}
    if arguments.url:
        legs.discard("relay")
    if "client" in legs and not CLIENT.exists():
        print(f"the client is not tested: {CLIENT.name} is missing")
        legs.discard("client")
    expected = Expected(EXPECTED, EXPECTED_OF_RELAYS)
    report = Report(expected)
    results = Path(tempfile.mkdtemp(prefix="conformance-"))
    run = Run(suite, report, arguments.only, results)
    try:
        if "server" in legs and arguments.url:
            run.server(arguments.url)
        elif "server" in legs:
            with serving() as url:
                run.server(url)
            # Responses are JSON by default where possible; test streamed responses as well.
            with serving("--answers", "sse") as url:
                run.revision(url, REVISIONS[0], "(streams)")
        if "relay" in legs:
            run.relays()
    except NotStarted as exc:
        report.counts["FAIL"] += 1
        print(f"FAIL     a server did not start: {exc}")
    except official.Unavailable as exc:
        print(f"the server of the official SDK was not run: {exc}")
        report.counts["FAIL"] += os.environ.get("CI") == "true"
    if "client" in legs:
        run.client(f"{sys.executable} {CLIENT}")
    stale = [] if arguments.only else expected.unmet(run.legs)
    for entry in stale:
        print(f"FAIL     expected failures: {entry!r} matches no scenario that was run")
    failed = report.counts["FAIL"] + len(stale)
    print(
        f"\nconformance {VERSION}: {report.counts['ok']} ok, {failed} failed, "
        f"{report.counts['not yet']} not yet, in {time.monotonic() - began:.0f} s"
    )
    if arguments.record:
        facts = {"suite": VERSION, "legs": report.by_leg}
        arguments.record.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    if failed or not report.counts:
        print(f"details: {results}")
        return 1
    shutil.rmtree(results)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run the official conformance suite.")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="run only these scenarios (* is a wildcard)",
    )
    parser.add_argument("--leg", choices=("server", "client", "relay"), help="run only this leg")
    parser.add_argument("--url", help="test a running server, e.g. behind a gateway")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the counts to FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
