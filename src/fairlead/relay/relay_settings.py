"""Settings of a relay. Durations are in seconds."""

from ..config.upstream_settings import UpstreamSettings
from ..limits import PARKED_CALLS

__all__ = ["RelaySettings"]


class RelaySettings(UpstreamSettings, frozen=True, kw_only=True):
    """Settings for the connections to a server and for forwarded calls."""

    # maximum number of calls per principal that wait for input
    max_parked: int = PARKED_CALLS.value
