"""Run folders of tests and write the numbers of results: `record_tests.py FILE FOLDER...`."""

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any


def main(file: str, *folders: str) -> int:
    """Run the tests in each folder, write the counts to a file, and return 1 if a test failed."""
    rows = [_run(folder) for folder in folders]
    Path(file).write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["failed"] for row in rows))


def _run(folder: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.xml"
        workers = ("-n", "2", "--dist", "worksteal")
        command = (sys.executable, "-m", "pytest", folder, *workers, f"--junitxml={report}")
        subprocess.run(command, check=False)
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = sum(_has(case, "failure", "error") for case in cases)
    skipped = sum(_has(case, "skipped") for case in cases)
    passed = len(cases) - failed - skipped
    return {"folder": folder, "passed": passed, "failed": failed, "skipped": skipped}


def _has(case: ElementTree.Element, *outcomes: str) -> bool:
    return any(case.find(outcome) is not None for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
