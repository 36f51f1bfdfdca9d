"""Pytest plugin that records the lines and the duration of each test.

It runs inside a workspace (`-p recorder`). Child processes record themselves: every interpreter of
the workspace imports `child_recorder.py` during a recording.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

_OUTPUT = Path(os.environ["MUTANTS_OUTPUT"])
_CURRENT = Path(sys.prefix) / "current_test"
_seconds: dict[str, float] = {}
_failed: set[str] = set()
_skipped: set[str] = set()


def _start() -> coverage.Coverage:
    sources = f"{os.environ['MUTANTS_SOURCES']}/*"
    recording = coverage.Coverage(
        data_file=str(_OUTPUT / "main.coverage"), config_file=False, include=[sources]
    )
    recording.start()
    return recording


_recording = _start()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _CURRENT.write_text(item.nodeid)
    _recording.switch_context(item.nodeid)
    try:
        return (yield)  # type: ignore[return-value]
    finally:
        _recording.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        _failed.add(report.nodeid)
    if report.skipped:
        _skipped.add(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    _recording.stop()
    _recording.save()
    told = {"seconds": _seconds, "failed": sorted(_failed), "skipped": sorted(_skipped)}
    (_OUTPUT / "tests.json").write_text(json.dumps(told))
