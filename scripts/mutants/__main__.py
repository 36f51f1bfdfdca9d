"""Command line: `make mutants ARGS="--seed 7 --count 100 --at-least 90"`."""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

from .coverage_map import CoverageMap
from .known import known_mutants
from .operators import Mutant, compiles, mutants_of
from .report import caught, difference, print_report, record_counts, write_report
from .runner import Result, run_mutant
from .workspace import ROOT, Workspace

_SOURCES = ROOT / "src" / "fairlead"
_LEFT_OUT = ("cli/", "demo/")


def main() -> int:
    """Draw mutants, run their tests and report the survivors."""
    options = _options()
    mutants = [] if options.map_only else _chosen(options)
    if options.list:
        for mutant in mutants:
            print(difference(mutant))
        return 0
    workspaces = [Workspace(str(number)) for number in range(options.workers)]
    for workspace in workspaces:
        workspace.prepare()
    tests = CoverageMap()
    stale = [] if options.no_map else tests.stale(options.tests)
    if stale:
        print(f"recording {len(stale)} test files; this happens once", flush=True)
        tests.record(stale, workspaces)
    if options.map_only:
        return 0
    results = list(_run_all(mutants, tests, workspaces))
    print_report(results)
    settings = {"seed": options.seed, "packages": options.package, "known": options.known}
    write_report(results, settings)
    if options.record:
        record_counts(options.record, results, settings)
    needed = len(results) if options.known else options.at_least * len(results) / 100
    return 0 if caught(results) >= needed else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="decides which mutants are drawn")
    parser.add_argument("--count", type=int, default=100, help="how many mutants are drawn")
    parser.add_argument("--package", action="append", default=[], help="only this package")
    parser.add_argument("--at", help="all mutants of FILE or FILE:LINE, relative to src/fairlead")
    parser.add_argument("--known", action="store_true", help="those of known_mutants.toml")
    parser.add_argument("--at-least", type=float, default=90, help="percentage to be caught")
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    parser.add_argument("--tests", action="append", default=[], help="record only these folders")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--map-only", action="store_true", help="only record the tests")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the counts there")
    parser.add_argument("--no-map", action="store_true", help="use the recorded tests as they are")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> list[Mutant]:
    if options.known:
        return known_mutants()
    if options.at:
        module, _, line = options.at.partition(":")
        found = mutants_of(module, (_SOURCES / module).read_bytes())
        return [mutant for mutant in found if not line or mutant.line == int(line)]
    by_line: dict[tuple[str, int], list[Mutant]] = {}
    for path in sorted(_SOURCES.rglob("*.py")):
        module = str(path.relative_to(_SOURCES))
        wanted = not options.package or module.startswith(tuple(options.package))
        if wanted and not module.startswith(_LEFT_OUT):
            for mutant in mutants_of(module, path.read_bytes()):
                by_line.setdefault((module, mutant.line), []).append(mutant)
    # Lines are drawn first, then one mutant of each line, so that long lines are not drawn more
    # often.
    draw = random.Random(options.seed)
    lines = draw.sample(sorted(by_line), len(by_line))
    drawn = (draw.choice(by_line[line]) for line in lines)
    valid = (one for one in drawn if compiles(one, (_SOURCES / one.module).read_bytes()))
    return list(islice(valid, options.count))


def _run_all(
    mutants: Sequence[Mutant], tests: CoverageMap, workspaces: Sequence[Workspace]
) -> Iterator[Result]:
    idle: SimpleQueue[Workspace] = SimpleQueue()
    for workspace in workspaces:
        idle.put(workspace)

    def one(mutant: Mutant) -> Result:
        workspace = idle.get()
        try:
            return run_mutant(mutant, tests, workspace)
        finally:
            idle.put(workspace)

    with ThreadPoolExecutor(len(workspaces)) as pool:
        running = [pool.submit(one, mutant) for mutant in mutants]
        for number, done in enumerate(as_completed(running), 1):
            result = done.result()
            mutant = result.mutant
            where = f"{mutant.module}:{mutant.line} {mutant.operator}"
            by = f" by {result.by}" if result.by else ""
            print(f"{number:4} {result.outcome:9} {where}{by} ({result.seconds:.0f} s)", flush=True)
            yield result


if __name__ == "__main__":
    sys.exit(main())
