"""How tests here run that share a connection: in the loop in which it was opened."""

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
    """The libraries of others are large, and garbage is collected after each asynchronous test."""
    gc.collect()
    gc.freeze()  # what has been imported stays, and is not looked at again
