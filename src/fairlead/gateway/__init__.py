"""Gateway between clients and servers of all protocol revisions."""

from ..relay.relay import Relay
from ..relay.relay_settings import RelaySettings
from .catalog.views import View
from .gateway import Gateway
from .gateway_settings import GatewaySettings

__all__ = ["Gateway", "GatewaySettings", "Relay", "RelaySettings", "View"]
