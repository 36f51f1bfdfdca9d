"""Between clients and servers: whatever a client speaks, whatever a server speaks."""

from .gateway import Gateway
from .gateway_settings import GatewaySettings
from .relay import Relay
from .settings import RelaySettings
from .views import View

__all__ = ["Gateway", "GatewaySettings", "Relay", "RelaySettings", "View"]
