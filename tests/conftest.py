"""How tests run here: coroutines in a loop of their own, and nothing left behind."""

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

# Examples are small; a slow one means that the machine is busy, not that we are.
settings.register_profile("full", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)

TESTS = Path(__file__).parent
LIMIT = 60.0  # seconds for one asynchronous test
SLOW = ("interop", "chaos", "matrix")  # folders whose tests are all slow


def pytest_configure(config: pytest.Config) -> None:
    """`make test` tries fewer examples than `make test-all`, unless CI runs it."""
    quick = "not slow" in config.getoption("markexpr", "") and "CI" not in os.environ
    settings.load_profile("quick" if quick else "full")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in SLOW:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """What was imported so far stays: collecting garbage after a test need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def fresh_log_limits() -> None:
    """Let every test log as if it were the first: lines of a kind are limited per second."""
    if (module := sys.modules.get("fairlead.observe.log_filter")) is None:
        return
    for name in module.LOGGERS:
        for one in logging.getLogger(f"fairlead.{name}").filters:
            if paces := getattr(one, "_paces", None):
                paces.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests, each in a fresh loop and within a limit."""
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
    # Tasks that were told to stop may need a turn or two; whatever is left then has leaked.
    for _ in range(20):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        await asyncio.wait(left, timeout=0.05)
    pytest.fail(f"the test leaves tasks behind: {left}")


def _loop_factory(item: pytest.Function):  # type: ignore[no-untyped-def]
    """uvloop, unless the test asks for another one with `loop_kind` or `virtual_time`."""
    if isinstance(clock := item.funcargs.get("virtual_time"), VirtualTime):
        return clock.new_event_loop
    if item.funcargs.get("loop_kind") == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


@pytest.fixture(params=["uvloop", "asyncio"])
def loop_kind(request: pytest.FixtureRequest) -> str:
    """Ask for this to run a test on both kinds of event loop."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _no_stray_settings(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Settings of the person who runs the tests do not count."""
    for name in list(os.environ):
        if name.startswith("FAIRLEAD_"):
            monkeypatch.delenv(name)
    yield
    if inspect.iscoroutinefunction(request.function):
        gc.collect()  # so that a resource warning hits the test that caused it


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """Ask for this to wait for time limits without waiting, see `tests/support/virtual_time.py`."""
    clock = VirtualTime()
    monkeypatch.setattr("time.monotonic", clock)
    return clock
