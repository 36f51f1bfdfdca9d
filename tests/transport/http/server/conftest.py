"""Fixture that runs tests over both paths to an endpoint."""

from typing import Any

import pytest


@pytest.fixture(params=[True, False], ids=["lane", "asgi"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings of the fast path or of the ASGI path."""
    return {"fast_path": request.param}
