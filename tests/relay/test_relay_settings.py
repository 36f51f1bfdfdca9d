"""Defaults of relays that the documentation promises."""

from fairlead.relay.relay_settings import RelaySettings


def test_the_documented_limits_are_the_defaults() -> None:
    """`docs/bridging.md`: up to four connections, and 60 s until a call gets its turn."""
    settings = RelaySettings()
    assert (settings.max_channels, settings.turn_timeout) == (4, 60.0)
    assert (settings.upstream, settings.era, settings.strict) == ("shared", "auto", False)
