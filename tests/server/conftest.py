"""Fixture with the protocol versions that server tests run with."""

import pytest


@pytest.fixture(params=["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "auto"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)
