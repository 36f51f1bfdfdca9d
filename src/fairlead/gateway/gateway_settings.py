"""Settings of a gateway. Durations are in seconds."""

from msgspec import Struct, field

from ..limits import CATALOG_BYTES, LIST_BYTES, LIST_ITEMS, SERVER_CATALOG_BYTES
from ..relay.relay_settings import RelaySettings
from .catalog.views import View

__all__ = ["GatewaySettings", "gateway_keywords"]


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """Settings of a gateway that offers many servers as one."""

    name: str = "fairlead-gateway"  # name that clients see
    # instructions for clients; None: those of all servers, each under the server's name
    instructions: str | None = None
    # The view of clients that have no view of their own.
    view: View = field(default_factory=View.everything)
    search: bool = False  # list three tools for searching instead of all tools
    page_size: int = 0  # items per page of a list; 0: all items on one page
    deadline: float = 1.0  # longest time that a list request waits for starting servers
    fresh: float = 60.0  # age after which a list is fetched again in the background; 0: never
    failure_threshold: int = 5  # consecutive failures that open the circuit breaker of a server
    reset_timeout: float = 30.0  # time before an open circuit breaker admits a trial call
    admin_token: str | None = None  # None: the admin API is disabled
    max_list_bytes: int = LIST_BYTES.value  # limit per list of a server, for all pages together
    max_list_items: int = LIST_ITEMS.value  # limit per list of a server
    max_server_bytes: int = SERVER_CATALOG_BYTES.value  # limit for all lists of one server together
    max_catalog_bytes: int = CATALOG_BYTES.value  # limit for the lists of all servers together
    # settings for connections and calls
    relay: RelaySettings = field(default_factory=RelaySettings)


def gateway_keywords() -> dict[str, str]:
    """Return remedies for arguments of `Gateway` that belong elsewhere."""
    option = "pass it to `gateway.run_http()` or `gateway.create_http_app()`"
    answered = "the clients of the gateway answer the requests of servers"
    return {
        "auth": option,
        "auth_token": option,
        "host": option,
        "on_elicit": answered,
        "on_roots": answered,
        "on_sample": answered,
        "port": option,
        "rules": "use `interceptors=[RuleSet.of_file(path)]`",
        "servers": "use `await gateway.connect({...})`",
        "tools": "use `views=`, which select the tools that clients see",
    }
