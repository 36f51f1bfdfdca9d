"""Tests of the settings of a client and of remembered eras."""

import pytest

from fairlead.client.client_config import TIMEOUT_VARIABLE, request_timeout
from fairlead.client.connection.era_cache import EraCache


@pytest.mark.parametrize(
    ("variable", "entry", "seconds"),
    [
        (None, None, 30.0),
        (None, 1500, 1.5),
        (None, 0, 0.0),
        ("250", 1500, 0.25),
        ("0", 1500, 0.0),
        ("0.5", 1500, 0.0005),
        ("-1", 1500, 1.5),
        ("soon", 1500, 1.5),
    ],
)
def test_the_environment_overrides_the_timeout_of_an_entry(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, entry: float | None, seconds: float
) -> None:
    if variable is not None:
        monkeypatch.setenv(TIMEOUT_VARIABLE, variable)
    assert request_timeout(entry) == seconds


def test_the_oldest_remembered_eras_are_dropped() -> None:
    eras = EraCache(limit=2)
    for name, stateless in (("a", True), ("b", False), ("c", True)):
        eras.remember(name, stateless)
    assert [eras.stateless(name) for name in "abc"] == [None, False, True]
    eras.forget("b")
    assert eras.stateless("b") is None
    eras.clear()
    assert eras.stateless("c") is None
