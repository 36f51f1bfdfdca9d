"""Pytest plugin that runs a given list of tests in a given order, each within a time limit.

It runs inside a workspace (`-p selected`). The list is a JSON file of `[name, limit in seconds]`;
the name of the first test that fails is written next to it.
"""

import faulthandler
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

HANGS = 97  # the exit code when a test exceeds its limit

_LIST = Path(os.environ["MUTANTS_SELECTED"])
_selected = {
    name: (place, limit) for place, (name, limit) in enumerate(json.loads(_LIST.read_text()))
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    chosen = [item for item in items if item.nodeid in _selected]
    items[:] = sorted(chosen, key=lambda item: _selected[item.nodeid][0])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    timer = threading.Timer(_selected[item.nodeid][1], _give_up, [item.nodeid])
    timer.daemon = True
    timer.start()
    try:
        return (yield)  # type: ignore[return-value]
    finally:
        timer.cancel()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _note(report.nodeid)


def _note(name: str) -> None:
    _LIST.with_suffix(".failed").write_text(name)


def _give_up(name: str) -> None:
    _note(name)
    faulthandler.dump_traceback(2)
    os._exit(HANGS)
