"""Settings of a relay. Durations are in seconds."""

from ..config.upstream_settings import UpstreamSettings
from ..limits import PARKED_CALLS

__all__ = ["RelaySettings"]


class RelaySettings(UpstreamSettings, frozen=True, kw_only=True):
    """Settings for the connections to a server, and for the calls that pass."""

    call_timeout: float = 3600.0  # without a message of the server; 0: no limit
    park_timeout: float = 300.0  # for a client that was asked back to come again
    max_parked: int = PARKED_CALLS.value  # calls of one principal that wait for such an answer
    collect: float = 0.02  # questions that a server asks together are asked together
