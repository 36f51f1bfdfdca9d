"""Documented defaults of relay settings."""

from fairlead.relay.relay_settings import RelaySettings


def test_the_default_relay_settings_are_the_documented_limits() -> None:
    """A call that waits 0.25 s for its turn opens another connection, up to 32 connections."""
    settings = RelaySettings()
    assert (settings.max_connections, settings.turn_wait) == (32, 0.25)
    assert settings.turn_timeout == 60.0
    assert (settings.idle_close, settings.idle_close_used) == (300.0, 1800.0)
    assert settings.idle_release == 600.0
    assert (settings.share, settings.era, settings.strict) == ("alike", "auto", False)
