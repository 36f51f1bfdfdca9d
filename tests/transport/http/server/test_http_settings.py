"""What an endpoint is like if nothing is said about it."""

from dataclasses import asdict

import pytest

from fairlead.transport.http.server.http_settings import HttpSettings


def test_an_endpoint_serves_every_kind_of_client_and_asks_for_no_token() -> None:
    settings = HttpSettings()
    assert (settings.path, settings.sse_path, settings.ws_path) == ("/mcp", "/sse", "/ws")
    assert (settings.auth_token, settings.verify_token) == (None, None)
    assert (settings.sessions, settings.require_session, settings.fast_path) == (True, False, True)
    assert (settings.answers, settings.error_status) == ("auto", "spec")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_body", 16 << 20),  # bytes
        ("heartbeat", 15),  # seconds
        ("session_idle", 30 * 60),
        ("session_kept", 24 * 60 * 60),
        ("retry", 1),
        ("max_sessions", 10_000),
        ("max_sockets", 10_000),
    ],
)
def test_limits_that_hold_unless_others_are_set(name: str, value: float) -> None:
    assert asdict(HttpSettings())[name] == value


def test_settings_are_named() -> None:
    with pytest.raises(TypeError):
        HttpSettings("/other")  # type: ignore[misc]
