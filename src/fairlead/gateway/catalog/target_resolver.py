"""Resolution of the names in a request to all names of the item, before policies run.

A client can reach one tool under several names: `notes_erase` or a shortened form of it at the
merged endpoint, a name that its view assigns, `erase` at `/mcp/notes`, and inside `call_tool`.
Interceptors get the same `Target` in all cases: the server, the server's own name, and all other
names.
"""

from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from msgspec.structs import replace

from ...errors import RpcError
from ...interceptor import Answer, Exchange, Proceed
from ...protocol.envelope import Direction
from ...protocol.targets.list_kind import ListKind
from ...protocol.targets.targets import Target, head_determines_targets, targets_of
from ...upstream.connection.upstream_connection import UpstreamConnection
from ...wire import Request
from ..backends.registry import BackendRegistry
from .list_requests import MergedLists
from .merged_catalog import MergedCatalog
from .routing import Router
from .views import ClientViews, View

__all__ = ["TargetResolver"]

_KINDS: Final = {"tool": ListKind.TOOLS, "prompt": ListKind.PROMPTS}
_WITH_URI: Final = ("resources/read", "resources/subscribe", "resources/unsubscribe")
# Methods whose params contain a name or URI that identifies the target.
_REMEMBERED: Final = frozenset({"tools/call", "prompts/get", *_WITH_URI})
_LONGEST: Final = 256  # targets of requests with longer names or URIs are not cached
_MOST_KNOWN: Final = 4096  # maximum number of cached targets; clients choose the names


class TargetResolver:
    """Interceptor that runs before all policies and resolves the targets of requests.

    A request for a starting server waits here, because the names of its items are not known before.
    If the request waited after the policies, they would not recognise the item.
    """

    def __init__(
        self,
        catalog: MergedCatalog,
        registry: BackendRegistry,
        lists: MergedLists,
        router: Router,
        views: ClientViews,
    ) -> None:
        self._catalog = catalog
        self._registry = registry
        self._lists = lists
        self._views = views
        self._lookups: dict[str, Callable[[Exchange], Awaitable[object]]] = {
            "tools/call": router.tool,
            "prompts/get": router.prompt,
            "completion/complete": router.completing,
            **dict.fromkeys(_WITH_URI, router.resource),
        }
        self._known: dict[Hashable, tuple[Target, ...]] = {}
        self._changes = -1  # state of lists and views at which `_known` was filled

    def __call__(self, exchange: Exchange, proceed: Proceed) -> Awaitable[Answer]:
        exchange.resolver = self.resolve
        if (
            exchange.server is None
            and exchange.direction is Direction.CLIENT_TO_SERVER
            and type(exchange.message) is Request
            and self._is_unknown(exchange)
        ):
            return self._wait(exchange, proceed)
        return proceed(exchange)

    async def _wait(self, exchange: Exchange, proceed: Proceed) -> Answer:
        await self.wait_until_known(exchange)
        return await proceed(exchange)

    def resolve(self, exchange: Exchange) -> tuple[Target, ...]:
        """Return the targets of a message. An item that no server has keeps the given name.

        Targets are cached until a list or view changes, because several policies need them for one
        request. Without the cache, a call with policies takes 1.25 times as long.
        """
        message, head = exchange.message, exchange.head
        if message.method not in _REMEMBERED or type(message) is not Request:
            return self._resolve(exchange)
        if not head_determines_targets(message.method, head):
            return self._resolve(exchange)
        changes = self._catalog.changes
        if changes != self._changes:
            self._known.clear()
            self._changes = changes
        name, uri = head.name, head.uri
        key = message.method, name, uri, exchange.alias, exchange.server, exchange.caller.principal
        found = self._known.get(key)
        if found is None:
            found = self._resolve(exchange)
            lengths = len(name) if type(name) is str else 0, len(uri) if type(uri) is str else 0
            # Targets of server requests depend on the connection, which is not part of the key.
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
        view, server = self._views.view_of(exchange.caller), self._endpoint(exchange)
        return tuple([self._resolved(one, exchange, view, server) for one in given])

    def server_of(self, exchange: Exchange) -> str | None:
        """Return the server that receives or sent a message; None if it cannot be determined."""
        server = self._endpoint(exchange)
        if server is not None:
            return server
        servers = {one.server for one in self.resolve(exchange)}
        return servers.pop() if len(servers) == 1 else None

    async def wait_until_known(self, exchange: Exchange) -> None:
        """Wait until the server of a call has started, as long as the call itself would wait.

        Raises:
            RpcError: The server takes too long to start.
        """
        await self._lists.ready()
        look_up = self._lookups.get(exchange.method)
        if look_up is None or self._endpoint(exchange) is not None:
            return
        try:
            await look_up(exchange)
        except RpcError as exc:
            if isinstance(exc.data, dict) and exc.data.get("starting"):
                # The server is starting. Without its names, the call would bypass the policies.
                raise

    def _is_unknown(self, exchange: Exchange) -> bool:
        for one in self.resolve(exchange):
            if one.kind == "resource" and not self._registry.is_ready:
                return True  # A starting server may list the item too, and come first.
            if one.server is None and not one.unclear:
                return True
        return False

    def _endpoint(self, exchange: Exchange) -> str | None:
        """Return the server whose endpoint or connection received the message, or None."""
        if exchange.direction is Direction.SERVER_TO_CLIENT:
            carrier = exchange.edge.carrier
            member = (
                self._registry.owner(carrier.name)
                if isinstance(carrier, UpstreamConnection)
                else None
            )
            return None if member is None else member.name
        if exchange.server is not None or isinstance(exchange.message, Request):
            return exchange.server
        for name, endpoint in self._registry.endpoints.items():
            if exchange.edge in endpoint.clients:
                return name
        return None

    def _resolved(
        self, target: Target, exchange: Exchange, view: View, server: str | None
    ) -> Target:
        catalog, name = self._catalog, target.own
        if target.unclear:
            return target
        kind = _KINDS.get(target.kind)
        if kind is None:
            if server is None and target.kind == "resource":
                # Resources are found by URI or by a matching template, templates by their text.
                server = catalog.template_owner(name, view)
            return replace(target, server=server)
        if server is not None:
            # An earlier step put the merged name into the call; `alias` is the server's name.
            own = exchange.alias or name
            return catalog.target(kind, server, own, view)
        found = catalog.tool(name, view) if kind is ListKind.TOOLS else catalog.prompt(name, view)
        return target if found is None else found
