"""The part of the admin API that is about servers and clients: how they are, what they have."""

import itertools
from collections import deque
from operator import attrgetter
from time import time
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from ...errors import ConfigError
from ...peer import Peer
from ..catalog.list_kind import ListKind
from .page_routes import PageRequest, Route, mistakes
from .status import status

if TYPE_CHECKING:
    from ..gateway import Gateway

__all__ = ["ROUTES", "ClientSessions", "NotificationLog"]

MAX_HEARD = 200
_PLUMBING = ("notifications/subscriptions/acknowledged", "notifications/progress")


class NotificationLog:
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


class ClientSessions:
    """The clients of a gateway under numbers: the ids of their sessions are nobody's business."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._numbers: WeakKeyDictionary[Peer, int] = WeakKeyDictionary()
        self._next = itertools.count(1)

    def list(self) -> list[dict[str, Any]]:
        """All of them, as plain data."""
        facts = self._gateway.sessions()
        peers = [visitor.peer for visitor in self._gateway.visitors()]
        return [{"id": self._number(p), **one} for p, one in zip(peers, facts, strict=True)]

    async def end(self, number: int) -> None:
        """Hang up on one; what it has under way is cancelled.

        Raises:
            ConfigError: there is none of this number.
        """
        for visitor in self._gateway.visitors():
            if self._number(visitor.peer) == number:
                await visitor.peer.close("the session was ended by an administrator")
                return
        raise ConfigError(f"there is no session {number}")

    def _number(self, peer: Peer) -> int:
        number = self._numbers.get(peer)
        if number is None:
            number = self._numbers[peer] = next(self._next)
        return number


async def reconnect(gateway: "Gateway", request: PageRequest) -> Any:
    """Connect a server anew, also one that was given up."""
    await gateway.manager.reconnect_server(request.value)
    return {"reconnected": request.value}


def refresh(gateway: "Gateway", request: PageRequest) -> Any:
    """List what a server has again."""
    gateway.members[_known(gateway, request)].refresh()
    return {"refreshing": request.value}


async def disconnect(gateway: "Gateway", request: PageRequest) -> Any:
    """Take a server away, until the gateway starts again."""
    await gateway.disconnect(_known(gateway, request))
    return {"disconnected": request.value}


async def reload(gateway: "Gateway", request: PageRequest) -> Any:
    """Read the files again, and list everything anew."""
    if gateway.reload is not None:
        with mistakes():
            await gateway.reload()
    for member in gateway.members.values():
        member.refresh()
    return {"reloaded": list(gateway.members)}


async def end_session(sessions: ClientSessions, request: PageRequest) -> Any:
    """Hang up on a client, which may come back with a new session."""
    await sessions.end(request.number)
    return {"ended": request.number}


def list_resources(gateway: "Gateway", request: PageRequest) -> Any:
    """Return what servers have to read, and whose it is."""
    return _offered(gateway, ListKind.RESOURCES) + _offered(gateway, ListKind.TEMPLATES)


def _known(gateway: "Gateway", request: PageRequest) -> str:
    server = request.value
    if server not in gateway.members:
        there = ", ".join(gateway.members) or "none"
        raise ConfigError(f"There is no server {server!r}; there are: {there}")
    return server


def _offered(gateway: "Gateway", kind: ListKind) -> list[dict[str, Any]]:
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


_gateway, _sessions = attrgetter("gateway"), attrgetter("sessions")

ROUTES: Final = (
    Route("GET", "/admin/servers", _gateway, lambda gateway, _: status(gateway)["servers"]),
    Route("POST", "/admin/servers/{name:path}/reconnect", _gateway, reconnect),
    Route("POST", "/admin/servers/{name:path}/refresh", _gateway, refresh),
    Route("DELETE", "/admin/servers/{name:path}", _gateway, disconnect),
    Route("POST", "/admin/reload", _gateway, reload),
    Route("GET", "/admin/resources", _gateway, list_resources),
    Route(
        "GET", "/admin/prompts", _gateway, lambda gateway, _: _offered(gateway, ListKind.PROMPTS)
    ),
    Route("GET", "/admin/notifications", _gateway, lambda gateway, _: gateway.hearsay.list()),
    Route("GET", "/admin/sessions", _sessions, lambda sessions, _: sessions.list()),
    Route("DELETE", "/admin/sessions/{id}", _sessions, end_session),
)
