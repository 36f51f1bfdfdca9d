"""Expected differences of a suite, and the assessment of a run."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

KINDS = ("spec", "defect", "suite", "unsteady")
_REASON = re.compile(rf"({'|'.join(KINDS)})( [^:]*)?: \S.*")


class Malformed(Exception):
    """Raised if a file of expected differences is invalid."""


class Expected:
    """The tests that may have another outcome on one path, each with its reason.

    In a file, a line that is not indented is a reason, and the indented lines below it are the ids
    of tests. A reason begins with `spec SECTION:` (the specification explains it), `defect:` (of
    Fairlead, until it is fixed), `suite:` (the test depends on its connection) or `unsteady:`
    (the outcome depends on the speed of the machine, so both are right). An id that ends in `[*]`
    matches all parameters of a test.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)  # reasons by test id

    @classmethod
    def read(cls, path: Path) -> "Expected":
        """Read a file; a missing file means no differences.

        Raises:
            Malformed: A line is invalid; the message has its number.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return cls({})
        reasons: dict[str, str] = {}
        reason = None
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            if not line.startswith(" "):
                reason = line.strip()
                if not _REASON.fullmatch(reason):
                    raise Malformed(
                        f"{path.name}:{number}: a reason must begin with one of {', '.join(KINDS)}"
                    )
                continue
            if reason is None:
                raise Malformed(f"{path.name}:{number}: a test without a reason")
            if line.strip() in reasons:
                raise Malformed(f"{path.name}:{number}: {line.strip()} is listed twice")
            reasons[line.strip()] = reason
        return cls(reasons)

    def reason(self, test: str) -> str | None:
        """Return the reason why a test may differ, or None if it must not."""
        return self.reasons.get(test) or self.reasons.get(_any_parameters(test))

    def unknown(self, tests: Iterable[str]) -> list[str]:
        """Return the entries that match none of the tests."""
        known = {name for test in tests for name in (test, _any_parameters(test))}
        return [entry for entry in self.reasons if entry not in known]


@dataclass
class Verdict:
    """Outcomes of the tests on one path, compared with those of the direct connection."""

    same: list[str] = field(default_factory=list)
    # Reasons for expected differences, by test id.
    explained: dict[str, str] = field(default_factory=dict)
    unexplained: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)  # listed as different, but with the same outcome

    @property
    def wrong(self) -> list[str]:
        return self.unexplained + self.stale


def judge(outcomes: Mapping[str, str], baseline: Mapping[str, str], expected: Expected) -> Verdict:
    """Compare outcomes with the baseline; ignore tests that have only one of the two outcomes."""
    verdict = Verdict()
    for test, outcome in outcomes.items():
        if test not in baseline:
            continue
        reason = expected.reason(test)
        if reason is not None and reason.startswith("unsteady"):
            verdict.explained[test] = reason
        elif outcome == baseline[test]:
            (verdict.same if reason is None else verdict.stale).append(test)
        elif reason is None:
            verdict.unexplained.append(test)
        else:
            verdict.explained[test] = reason
    return verdict


def _any_parameters(test: str) -> str:
    name, found, _ = test.partition("[")
    return f"{name}[*]" if found else test
