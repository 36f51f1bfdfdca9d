"""Settings of a relay. Durations are in seconds."""

from ..config.upstream_settings import UpstreamSettings
from ..limits import PARKED_CALLS

__all__ = ["RelaySettings"]


class RelaySettings(UpstreamSettings, frozen=True, kw_only=True):
    """Settings for the connections to a server and for forwarded calls."""

    call_timeout: float = 3600.0  # the longest time without a message from the server; 0: unlimited
    # the longest time until a stateless client returns with the requested input
    park_timeout: float = 300.0
    max_parked: int = PARKED_CALLS.value  # calls of one principal that wait for input
    # requests of a server within this time are sent to a stateless client together
    collect: float = 0.02
