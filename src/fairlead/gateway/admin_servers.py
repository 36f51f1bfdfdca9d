"""The part of the admin API that is about servers: how they are, what they have and say.

GET    /admin/servers                   how they are, and where they come from
GET    /admin/resources                 what they have to read, and whose it is
GET    /admin/prompts
GET    /admin/notifications             what they told of late, the last at the end
POST   /admin/reload                    read the files again, and list everything anew
POST   /admin/servers/NAME/reconnect
POST   /admin/servers/NAME/refresh
DELETE /admin/servers/NAME
"""

from collections import deque
from time import time
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from .admin_asking import Mistake
from .catalog import Kind
from .status import status

if TYPE_CHECKING:
    from .gateway import Gateway

__all__ = ["SERVER_PATHS", "Hearsay", "act_on_servers"]

MAX_HEARD = 200
_PLUMBING = ("notifications/subscriptions/acknowledged", "notifications/progress")
SERVER_PATHS = (
    "GET /admin/servers, DELETE /admin/servers/NAME, POST /admin/servers/NAME/reconnect, "
    "POST /admin/servers/NAME/refresh, POST /admin/reload, GET /admin/resources, "
    "GET /admin/prompts, GET /admin/notifications"
)


class Hearsay:
    """What servers told of their own accord; not what was in it, except for a URI."""

    def __init__(self) -> None:
        self._heard: deque[dict[str, Any]] = deque(maxlen=MAX_HEARD)

    def add(self, server: str, method: str, params: dict[str, Any]) -> None:
        if method in _PLUMBING:
            return
        about = params.get("uri")
        one = {"at": round(time(), 3), "server": server, "method": method}
        self._heard.append({**one, "uri": about} if isinstance(about, str) else one)

    def list(self) -> list[dict[str, Any]]:
        return [*self._heard]


async def act_on_servers(gateway: "Gateway", method: str, steps: list[str]) -> Any:
    """Do what is asked; None if it is nothing of ours.

    Raises:
        FairleadError: it did not work.
    """
    match method, steps:
        case "GET", ["servers"]:
            return status(gateway)["servers"]
        case "GET", ["resources"]:
            return _offered(gateway, Kind.RESOURCES) + _offered(gateway, Kind.TEMPLATES)
        case "GET", ["prompts"]:
            return _offered(gateway, Kind.PROMPTS)
        case "GET", ["notifications"]:
            return gateway.hearsay.list()
        case "POST", ["reload"]:
            return await _reload(gateway)
        case "POST", ["servers", *name, "reconnect"]:
            server = "/".join(name)
            await gateway.manager.reconnect_server(server)
            return {"reconnected": server}
        case "POST", ["servers", *name, "refresh"]:
            server = _known(gateway, name)
            gateway.members[server].refresh()
            return {"refreshing": server}
        case "DELETE", ["servers", *name] if name:
            server = _known(gateway, name)
            await gateway.disconnect(server)
            return {"disconnected": server}
    return None


def _known(gateway: "Gateway", name: list[str]) -> str:
    server = "/".join(name)
    if server not in gateway.members:
        there = ", ".join(gateway.members) or "none"
        raise ConfigError(f"There is no server {server!r}; there are: {there}")
    return server


async def _reload(gateway: "Gateway") -> dict[str, Any]:
    if gateway.reload is not None:
        try:
            await gateway.reload()
        except ConfigError as exc:
            raise Mistake(str(exc)) from exc
    for member in gateway.members.values():
        member.refresh()
    return {"reloaded": list(gateway.members)}


def _offered(gateway: "Gateway", kind: Kind) -> list[dict[str, Any]]:
    """What each server lists, with what it is called here."""
    servers = {one["server"]: one for one in status(gateway)["servers"]}
    return [
        {
            kind.key: gateway.catalog.merged_name(kind, server, name) if kind.named else name,
            "server": server,
            "status": about["status"],
            "source": about["source"],
        }
        for server, about in servers.items()
        for name in gateway.catalog.own_names(kind, server)
    ]
