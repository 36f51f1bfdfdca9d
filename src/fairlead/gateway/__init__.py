"""Between clients and servers: whatever a client speaks, whatever a server speaks."""

from ..relay.relay import Relay
from ..relay.settings import RelaySettings
from .catalog.views import View
from .gateway import Gateway
from .settings import GatewaySettings

__all__ = ["Gateway", "GatewaySettings", "Relay", "RelaySettings", "View"]
