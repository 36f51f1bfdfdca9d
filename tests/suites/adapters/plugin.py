"""The pytest plugin of both suites: selection of tests, and a report for each.

The runner passes its options in environment variables:

- `SUITE_ERA`: `handshake` or `stateless`
- `SUITE_SAMPLE`, `SUITE_SEED`: size and seed of a random sample; without them, all tests run
- `SUITE_ONLY`: a file with the ids to run, one per line
- `SUITE_RESULTS`: a file to which a line of JSON is appended for each test
"""

import contextlib
import functools
import inspect
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

ERA = os.environ.get("SUITE_ERA", "handshake")
LIMIT = 20.0  # seconds that a test may use one connection

_connected = False  # True if the running test has used a replaced connection


def connected() -> None:
    """Record that the running test uses the path under test."""
    global _connected
    _connected = True


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Limit how long a test uses its connection.

    A test that pytest's timeout interrupts leaves its coroutines behind; this limit ends the test
    in
    the event loop.
    """
    with anyio.fail_after(LIMIT):
        yield


def select(items: list[pytest.Item], wanted: Callable[[pytest.Item], bool]) -> None:
    """Reduce `items` in place to the selected tests, or to a sample of them."""
    chosen = [item for item in items if wanted(item)]
    if "SUITE_ONLY" in os.environ:
        only = set(Path(os.environ["SUITE_ONLY"]).read_text().splitlines())
        chosen = [item for item in chosen if item.nodeid in only]
    sample = int(os.environ.get("SUITE_SAMPLE", "0"))
    if 0 < sample < len(chosen):
        drawn = random.Random(os.environ["SUITE_SEED"])
        names = sorted(item.nodeid for item in chosen)
        kept = set(drawn.sample(names, sample))
        chosen = [item for item in chosen if item.nodeid in kept]
    items[:] = chosen
    for item in chosen:
        _contain(item)


def _contain(item: Any) -> None:
    """Turn `pytest.fail` in an asynchronous test into an `AssertionError`.

    The original exception is a `BaseException`, which ends the event loop that a module's tests
    share.
    """
    function = item.obj
    if not inspect.iscoroutinefunction(function):
        return

    @functools.wraps(function)
    async def contained(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except (pytest.fail.Exception, BaseExceptionGroup) as exc:
            if isinstance(exc, Exception):
                raise
            failed = exc if isinstance(exc, pytest.fail.Exception) else _failed(exc)
            if failed is None:
                raise
            raise AssertionError(str(failed)) from exc

    item.obj = contained


def _failed(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    found = group.subgroup(pytest.fail.Exception)
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _connected
    _connected = False
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    if call.when == "teardown":
        report.user_properties.append(("connected", _connected))
    return report


class Reporter:
    """A reporter that appends a line to a file for each test."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._open: dict[str, dict[str, Any]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write({"collected": len(session.items)})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        entry = self._open.setdefault(report.nodeid, {"id": report.nodeid, "outcome": "passed"})
        if report.failed or report.skipped:
            expected = hasattr(report, "wasxfail") and report.skipped
            entry["outcome"] = "xfailed" if expected else report.outcome
            entry["why"] = _reason(report)
        entry["seconds"] = round(entry.get("seconds", 0.0) + report.duration, 3)
        if report.when == "teardown":
            entry["connected"] = dict(report.user_properties).get("connected", False)
            self._write(self._open.pop(report.nodeid))

    def pytest_sessionfinish(self) -> None:
        self._file.close()

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry) + "\n")


def _reason(report: pytest.TestReport) -> str:
    """Return the failure message on one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr)
    return f"{report.when}: " + " ".join(text.split())[:400]


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.get("SUITE_RESULTS")
    if path:
        config.pluginmanager.register(Reporter(path), "suite-reporter")
