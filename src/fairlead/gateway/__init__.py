"""Between clients and servers: whatever a client speaks, whatever a server speaks."""

from .relay import Relay
from .settings import RelaySettings

__all__ = ["Relay", "RelaySettings"]
