"""Both ways to an endpoint."""

from typing import Any

import pytest


@pytest.fixture(params=[True, False], ids=["lane", "asgi"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The fast path, and the ordinary one through ASGI."""
    return {"fast_path": request.param}
