"""Settings of a gateway. Durations are in seconds."""

from msgspec import Struct, field

from ..limits import CATALOG_BYTES, LIST_BYTES, LIST_ITEMS, SERVER_CATALOG_BYTES
from ..relay.relay_settings import RelaySettings
from .catalog.views import View

__all__ = ["GatewaySettings"]


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """How many servers are offered as one."""

    name: str = "fairlead-gateway"
    instructions: str | None = None  # None: those of the servers, each under its name
    view: View = field(
        default_factory=View.everything
    )  # what clients see who have none of their own
    search: bool = False  # offer a search for tools instead of all of them
    page_size: int = 0  # items on one page of a list; 0: all
    deadline: float = 1.0  # that a list waits for servers that have just been started
    fresh: float = 60.0  # a list that is older is fetched again behind the answer; 0: never
    failure_threshold: int = 5  # failures in a row, after which a server is left alone
    reset_timeout: float = 30.0  # and for how long
    admin_token: str | None = None  # None: there is no admin API
    max_list_bytes: int = LIST_BYTES.value  # of one list of a server, all pages together
    max_list_items: int = LIST_ITEMS.value
    max_server_bytes: int = SERVER_CATALOG_BYTES.value  # of all lists of a server
    max_catalog_bytes: int = CATALOG_BYTES.value  # of all lists of all servers
    relay: RelaySettings = field(default_factory=RelaySettings)
