"""Import of packages that only some tests need."""

import importlib
import os
from typing import Any

import pytest


def import_or_skip(name: str, *, needs: str | None = None) -> Any:
    """Import a module, or skip the test module if its package is not installed.

    CI installs all packages, so a missing one is an error there.
    """
    if "CI" not in os.environ:
        pytest.importorskip((needs or name).split(".")[0])
    return importlib.import_module(name)
