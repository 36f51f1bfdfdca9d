"""How much servers log: as much as anybody wants who hears them."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from ...interceptor import Exchange
from ...manager import MCPManager
from ...protocol.own_errors import own_error
from ...relay.relayed_call import LEVELS
from ...relay.request_params import level_of
from ...relay.upstream_connection import Link
from ...wire.error_codes import INVALID_PARAMS
from .client_sessions import Visitor
from .upstream_subscriptions import log_failure

if TYPE_CHECKING:
    from ..backends.roster import BackendRegistry

__all__ = ["Levels"]


class Levels:
    """The log levels that clients have set, and what servers are asked for because of them."""

    def __init__(
        self,
        manager: MCPManager,
        visitors: Mapping[object, Visitor],
        start: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        """`start` runs something until it is done or the gateway ends."""
        self._manager = manager
        self._visitors = visitors
        self._start = start

    def set(self, exchange: Exchange, visitor: Visitor | None, roster: "BackendRegistry") -> bytes:
        """A client wants to have this much logged.

        Raises:
            RpcError: there is no such level.
        """
        level = level_of(exchange)
        if level not in LEVELS:
            raise own_error(
                INVALID_PARAMS, f"No log level {level!r}; there are {', '.join(LEVELS)}"
            )
        exchange.edge.log_level = level
        if visitor is not None:
            visitor.level = level
            for front in visitor.fronts.values():
                front.level = level
                self._set_on(front.link)
        for name in roster.servers:
            self._ask(name, self._least() or level)
        return b"{}"

    def came(self, servers: list[str]) -> None:
        """New servers hear what was set before."""
        level = self._least()
        if level is not None:
            for name in servers:
                self._ask(name, level)

    def _ask(self, server: str, level: str) -> None:
        supervisor = self._manager.describe().get(server)
        if supervisor is not None:
            self._start(log_failure(supervisor.set_log_level(level)))

    def _set_on(self, link: Link | None) -> None:
        """On a connection that is no manager's: what its sessions want to have logged."""
        if link is None or link.stateless or link.borrowed:
            return
        levels = [front.level for front in link.fronts if front.level is not None]
        wanted = {"level": min(levels, key=LEVELS.index)} if levels else {}
        self._start(log_failure(link.peer.request("logging/setLevel", wanted)))

    def _least(self) -> str | None:
        """A server that has one level for all logs what anybody wants."""
        wanted = [v.level for v in self._visitors.values() if v.level is not None]
        return min(wanted, key=LEVELS.index, default=None)
