"""Every name of what a client of a gateway means, known before a policy judges the request.

A client may reach one tool as `notes_erase` or a shortened form of that at the merged endpoint, as
whatever its view renames it to, as `erase` at `/mcp/notes`, and inside of `call_tool`. Interceptors
get the same `Target` each time: the server, the server's own name, and all others.
"""

from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ...errors import RpcError
from ...interceptor import Answer, Exchange, Proceed
from ...protocol.envelope import Direction
from ...protocol.targets.targets import Target, targets_of
from ...wire import Request
from .list_kind import ListKind
from .views import View

if TYPE_CHECKING:
    from ..gateway import Gateway

__all__ = ["TargetResolver"]

_KINDS: Final = {"tool": ListKind.TOOLS, "prompt": ListKind.PROMPTS}
_WITH_URI: Final = ("resources/read", "resources/subscribe", "resources/unsubscribe")
_REMEMBERED: Final = frozenset({"tools/call", "prompts/get", *_WITH_URI})
_LONGEST: Final = 256  # characters of a name that is remembered
_MOST_KNOWN: Final = 4096


class TargetResolver:
    """An interceptor that stands before all that judge: it lets them know what is meant.

    A request for a server that is still starting waits here, because nothing is known of its
    names before; it would wait behind the policies otherwise, and pass without being judged.
    """

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._known: dict[Hashable, tuple[Target, ...]] = {}
        self._changes = -1  # the state of the lists and views that they are from

    def __call__(self, exchange: Exchange, proceed: Proceed) -> Awaitable[Answer]:
        exchange.resolver = self.resolve
        if self._may_wait(exchange) and self._is_unknown(exchange):
            return self._wait(exchange, proceed)
        return proceed(exchange)

    async def _wait(self, exchange: Exchange, proceed: Proceed) -> Answer:
        await self.known(exchange)
        return await proceed(exchange)

    def resolve(self, exchange: Exchange) -> tuple[Target, ...]:
        """Return what a message means; an item that no server has keeps the name it was given.

        Answers are kept until a list or view changes: several policies ask in a row, and without
        this a guarded call takes 1.25 times as long.
        """
        message, head = exchange.message, exchange.head
        if message.method not in _REMEMBERED or type(message) is not Request:
            return self._resolve(exchange)
        changes = self._gateway.catalog.changes
        if changes != self._changes:
            self._known.clear()
            self._changes = changes
        name, uri = head.name, head.uri
        key = message.method, name, uri, exchange.alias, exchange.server, exchange.caller.principal
        found = self._known.get(key)
        if found is None:
            found = self._resolve(exchange)
            lengths = len(name) if type(name) is str else 0, len(uri) if type(uri) is str else 0
            if sum(lengths) <= _LONGEST and exchange.direction is Direction.CLIENT_TO_SERVER:
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[key] = found
        return found

    def _resolve(self, exchange: Exchange) -> tuple[Target, ...]:
        message = exchange.message
        given = targets_of(message.method, exchange.head, message.params)
        if not given:
            return given
        view, server = self._gateway.view_of(exchange.caller), self._endpoint(exchange)
        return tuple([self._resolved(one, exchange, view, server) for one in given])

    def server_of(self, exchange: Exchange) -> str | None:
        """Return the server that a message is for or from, if it is one."""
        server = self._endpoint(exchange)
        if server is not None:
            return server
        servers = {one.server for one in self.resolve(exchange)}
        return servers.pop() if len(servers) == 1 else None

    async def known(self, exchange: Exchange) -> None:
        """Wait for a server that is just starting, as long as the call itself would.

        Raises:
            RpcError: The server takes too long to start.
        """
        gateway, finding = self._gateway, self._gateway.router
        await gateway.listed()
        find: Callable[[Exchange], Awaitable[object]] | None = {
            "tools/call": finding.tool,
            "prompts/get": finding.prompt,
            "completion/complete": finding.completing,
            **dict.fromkeys(_WITH_URI, finding.resource),
        }.get(exchange.method)
        if find is None or self._endpoint(exchange) is not None:
            return
        try:
            await find(exchange)
        except RpcError as exc:
            if isinstance(exc.data, dict) and exc.data.get("starting"):
                raise  # the server may start in a moment, and policies must judge the call then

    def _may_wait(self, exchange: Exchange) -> bool:
        return (
            exchange.direction is Direction.CLIENT_TO_SERVER
            and exchange.server is None
            and isinstance(exchange.message, Request)
        )

    def _is_unknown(self, exchange: Exchange) -> bool:
        for one in self.resolve(exchange):
            if one.kind == "resource" and not self._gateway.is_ready:
                return True  # a server that is just starting may come before the one that has it
            if one.server is None and not one.unclear:
                return True
        return False

    def _endpoint(self, exchange: Exchange) -> str | None:
        """Return the server to which a whole endpoint or connection belongs."""
        if exchange.direction is Direction.SERVER_TO_CLIENT:
            return self._sender(exchange)
        if exchange.server is not None or isinstance(exchange.message, Request):
            return exchange.server
        for name, door in self._gateway.doors.items():
            if exchange.edge in door.guests:
                return name
        return None

    def _sender(self, exchange: Exchange) -> str | None:
        gateway, edge = self._gateway, exchange.edge
        for member in gateway.members.values():
            for replica in member.replicas:
                if any(link.peer is edge for link in replica.relay.upstream.links):
                    return member.name
                known = gateway.manager.describe().get(replica.name)
                client = None if known is None else known.client
                if client is not None and client.transport.peer is edge:
                    return member.name
        return None

    def _resolved(
        self, target: Target, exchange: Exchange, view: View, server: str | None
    ) -> Target:
        catalog, name = self._gateway.catalog, target.own
        if target.unclear:
            return target
        kind = _KINDS.get(target.kind)
        if kind is None:
            if server is None and target.kind == "resource":
                # A template is known by its text, a resource also by a template that it fits.
                server = catalog.template_owner(name, view)
            return replace(target, server=server)
        if server is not None:
            own = exchange.alias or name  # calls have their merged name here by now
            return catalog.target(kind, server, own, view)
        found = catalog.tool(name, view) if kind is ListKind.TOOLS else catalog.prompt(name, view)
        return target if found is None else found
