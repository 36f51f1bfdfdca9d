"""Hooks that run tests in the event loop in which their shared connection was opened."""

import gc

import pytest

from tests.support.interop.server_processes import Stage


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    stages = [value for value in pyfuncitem.funcargs.values() if isinstance(value, Stage)]
    if not stages:
        return None
    names = pyfuncitem._fixtureinfo.argnames
    stages[0].host.reset()
    stages[0].run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_collection_finish() -> None:
    """Freeze imported modules, so that garbage collections after asynchronous tests are fast."""
    gc.collect()
    gc.freeze()  # large third-party modules are not scanned again
