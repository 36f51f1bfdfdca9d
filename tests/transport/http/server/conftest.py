"""Fixture that runs a test with the fast path and with the ASGI path of an endpoint."""

from typing import Any

import pytest


@pytest.fixture(params=[True, False], ids=["lane", "asgi"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings of the fast path or of the ASGI path."""
    return {"fast_path": request.param}
