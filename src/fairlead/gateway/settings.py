"""How a relay treats its clients and its servers. Durations are in seconds."""

from typing import Literal

from msgspec import Struct, field

from ..limits import CATALOG_BYTES, LIST_BYTES, LIST_ITEMS, PARKED_CALLS, SERVER_CATALOG_BYTES
from .views import View

__all__ = ["GatewaySettings", "RelaySettings"]


class RelaySettings(Struct, frozen=True, kw_only=True):
    """What may be set."""

    upstream: Literal["shared", "per-session"] = "shared"
    """Whether sessions may share one process of a server; over HTTP each has its own anyway."""
    era: Literal["auto", "handshake", "stateless"] = "auto"
    """What to speak to the server; "auto" is what the client speaks, if the server does too."""
    strict: bool = False
    """Whether notifications that only the other side may send are dropped; else they pass."""
    max_channels: int = 4  # connections to one server for callers who may be asked back
    connect_timeout: float = 30.0
    call_timeout: float = 3600.0  # without a word from the server; 0: no limit
    hang_timeout: float = 60.0
    """Without any answer, not even to a ping, after a call was given up: then the process of a
    server is ended, and started anew when it is needed; 0: never."""
    turn_timeout: float = 60.0  # until a call that has to wait for others is refused
    input_timeout: float = 600.0  # for an answer of a person or a model
    park_timeout: float = 300.0  # for a client that was asked back to come again
    max_parked: int = PARKED_CALLS.value  # calls of one principal that wait for such an answer
    collect: float = 0.02  # questions that a server asks together are asked together
    max_connections: int = 32  # to one server, for callers who may not share one
    linger: float = 600.0  # that a shared connection is kept when nobody uses it; 0: for ever


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
