"""Defaults of the HTTP settings."""

from dataclasses import asdict

import pytest

from fairlead.transport.http.server.http_settings import HttpSettings


def test_the_default_endpoint_serves_all_transports_without_a_token() -> None:
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
def test_limits_in_the_http_settings_have_their_documented_defaults(
    name: str, value: float
) -> None:
    assert asdict(HttpSettings())[name] == value


def test_http_settings_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        HttpSettings("/other")  # type: ignore[misc]
