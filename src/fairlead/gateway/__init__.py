"""Between clients and servers: whatever a client speaks, whatever a server speaks."""

from .gateway import Gateway
from .relay import Relay
from .settings import GatewaySettings, RelaySettings
from .views import View

__all__ = ["Gateway", "GatewaySettings", "Relay", "RelaySettings", "View"]
