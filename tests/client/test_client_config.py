"""Tests of client settings and of remembered eras."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead.client import HttpTransport, MCPClientConfig, RequestOptions
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


def test_the_oldest_remembered_eras_are_dropped_at_the_limit() -> None:
    eras = EraCache(limit=2)
    for name, stateless in (("a", True), ("b", False), ("c", True)):
        eras.remember(name, stateless)
    assert [eras.stateless(name) for name in "abc"] == [None, False, True]
    eras.forget("b")
    assert eras.stateless("b") is None
    eras.clear()
    assert eras.stateless("c") is None


@pytest.mark.parametrize(
    ("make", "given", "closest"),
    [
        (MCPClientConfig, "timeout_second", "timeout_seconds"),
        (MCPClientConfig, "maxRetries", "max_retries"),
        (RequestOptions, "on_progres", "on_progress"),
        (lambda **o: HttpTransport({"type": "http", "url": "http://x"}, http=o), "verfy", "verify"),
    ],
)
def test_a_misspelt_setting_is_a_type_error_with_the_closest_name(
    make: Any, given: str, closest: str
) -> None:
    text = f"unknown keyword argument '{given}': did you mean '{closest}'"
    with pytest.raises(TypeError, match=text):
        make(**{given: 1})


def test_a_config_can_be_copied_and_compared() -> None:
    config = MCPClientConfig(timeout_seconds=5)
    assert replace(config, max_retries=1) == MCPClientConfig(timeout_seconds=5, max_retries=1)
