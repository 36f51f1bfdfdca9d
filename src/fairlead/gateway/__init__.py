"""The gateway: many servers behind one endpoint, for clients and servers of any protocol revision.
"""

from ..relay.relay import Relay
from ..relay.relay_settings import RelaySettings
from .catalog.views import View
from .gateway import Gateway
from .gateway_settings import GatewaySettings

__all__ = ["Gateway", "GatewaySettings", "Relay", "RelaySettings", "View"]
