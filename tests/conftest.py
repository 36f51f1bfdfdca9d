"""Hooks and fixtures of all tests: event loops, timeouts, and a check for leaked tasks."""

import asyncio
import gc
import inspect
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.virtual_time import VirtualTime

# No deadline: an example is slow only if the machine is busy.
settings.register_profile("full", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)

TESTS = Path(__file__).parent
LIMIT = 60.0  # seconds for one asynchronous test
SLOW = ("interop", "chaos", "matrix")  # all tests in these folders are marked as slow


def pytest_configure(config: pytest.Config) -> None:
    """Select the number of Hypothesis examples: few for `make test`, unless it runs in CI."""
    quick = "not slow" in config.getoption("markexpr", "") and "CI" not in os.environ
    settings.load_profile("quick" if quick else "full")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in SLOW:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Exclude imported modules from garbage collection, which runs after each test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def fresh_log_limits() -> None:
    """Reset the limits on log lines per second and the known secrets before each test."""
    if (module := sys.modules.get("fairlead.observe.log_filter")) is None:
        return
    # Otherwise journals of one test would not contain words that are secrets in another one.
    module._redactor, module._followed, module._learnt = None, False, 0
    module._owners.clear()
    module._fresh.clear()
    for name in module.LOGGERS:
        for one in logging.getLogger(f"fairlead.{name}").filters:
            if paces := getattr(one, "_paces", None):
                paces.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run each `async def` test in a new event loop and with a timeout."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    limit = None if "virtual_time" in pyfuncitem.funcargs else LIMIT
    with asyncio.Runner(loop_factory=_loop_factory(pyfuncitem)) as runner:
        runner.run(_bounded(pyfuncitem.obj(**arguments), limit))
    return True


async def _bounded(test, limit):  # type: ignore[no-untyped-def]
    async with asyncio.timeout(limit):
        await test
    # Cancelled tasks may need some loop iterations to end; remaining tasks count as leaked.
    for _ in range(20):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        await asyncio.wait(left, timeout=0.05)
    pytest.fail(f"the test leaves tasks behind: {left}")


def _loop_factory(item: pytest.Function):  # type: ignore[no-untyped-def]
    """Return the factory of uvloop, or of the loop selected by `loop_kind` or `virtual_time`."""
    if isinstance(clock := item.funcargs.get("virtual_time"), VirtualTime):
        return clock.new_event_loop
    if item.funcargs.get("loop_kind") == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


@pytest.fixture(params=["uvloop", "asyncio"])
def loop_kind(request: pytest.FixtureRequest) -> str:
    """Run the test once with uvloop and once with asyncio."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _no_stray_settings(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Remove Fairlead's environment variables, and collect garbage after coroutine tests."""
    for name in list(os.environ):
        if name.startswith("FAIRLEAD_"):
            monkeypatch.delenv(name)
    yield
    if inspect.iscoroutinefunction(request.function):
        gc.collect()  # raises resource warnings in the test that caused them


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """Replace the clock, so that timeouts expire without waiting; see `VirtualTime`."""
    clock = VirtualTime()
    monkeypatch.setattr("time.monotonic", clock)
    return clock
