"""Between clients and servers: whatever a client speaks, whatever a server speaks."""

from ..relay.relay import Relay
from ..relay.relay_settings import RelaySettings
from .catalog.views import View
from .gateway import Gateway
from .gateway_settings import GatewaySettings

__all__ = ["Gateway", "GatewaySettings", "Relay", "RelaySettings", "View"]
