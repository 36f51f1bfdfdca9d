"""One server of a gateway by itself: `/mcp/NAME`, with the names that the server gives its things.

Who sees everything talks to the server as through a relay, and gets all it can do. Who has a view
gets no more here than at the merged endpoint: lists come from the gateway's catalog, and what the
view does not have is not there. Interceptors see the merged names, so what they say about a tool
holds here too. The new names that a view gives are for the merged endpoint only.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, UnsetType

from ..interceptor import Answer, Exchange, Handler, Interceptor, chain
from ..peer import Peer
from ..peer.notification_pipeline import NotificationPipeline
from ..protocol.caller import Caller
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.envelope import Direction, SessionState, TransportContext
from ..protocol.headers import ParamHeader
from ..protocol.identity.principal import Principal
from ..protocol.outgoing_params import Identity
from ..protocol.own_errors import own_error
from ..protocol.targets.unique_names import full_name
from ..relay.relayed_call import LEVELS
from ..relay.request_params import level_of, listen_request_for, reference_of, uris_of, with_members
from ..server.http_app.http_runnable import EndpointHooks
from ..transport.channel import Channel
from ..wire import Notification
from ..wire.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from .backends.backend import Member
from .catalog.list_kind import ListKind
from .catalog.views import View
from .clients.client_sessions import Guest

if TYPE_CHECKING:
    from .gateway import Gateway

__all__ = ["SingleServerEndpoint"]

log = logging.getLogger("fairlead.gateway")

GRACE: Final = 1.0  # seconds for the last answers of a server that was taken away

_NAMED: Final = {"tools/call": ListKind.TOOLS, "prompts/get": ListKind.PROMPTS}
_LISTS: Final = {kind.method: kind for kind in ListKind}
_FOR_ALL: Final = frozenset(
    {"initialize", "server/discover", "ping", "logging/setLevel", "resources/unsubscribe"}
)


class SingleServerEndpoint(EndpointHooks):
    """What is served at the path of one server."""

    inline_methods: Container[str] = ()

    def __init__(self, gateway: "Gateway", member: Member) -> None:
        self._gateway = gateway
        self._member = member
        self._interceptors: tuple[Interceptor, ...] = gateway.interceptors
        self.on_malformed = gateway.on_malformed
        self._alone = NotificationPipeline(self._interceptors, Direction.CLIENT_TO_SERVER)
        self._inner: Handler = chain(self._interceptors, self._judge)
        self.guests: dict[object, Guest] = {}
        self.listening: dict[object, tuple[object, Principal]] = {}  # stateless: edge, and who
        self._views: dict[View, View] = {}
        self._under_way = 0
        self._quiet = asyncio.Event()  # nobody waits for an answer

    # What an endpoint asks of whoever it serves

    def attach(self, channel: Channel, principal: Principal) -> Peer:
        """Serve one client in the background; the returned peer can be closed."""
        timeout = self._gateway.settings.relay.input_timeout
        guest = Guest(
            principal,
            timeout,
            self._interceptors,
            self._gateway.quota,
            permits=lambda uri: self._permits(principal, uri),
        )
        peer = Peer(
            channel,
            Conversation(
                ConversationRole.SERVER, Identity(self._gateway.info), principal=principal
            ),
            handler=self.handler,
            on_notification=lambda note: guest.passage.put(
                note, guest.peer, lambda passed: self._told(guest, passed)
            ),
            on_cancelled=lambda note, cancel: guest.passage.cancel(note, guest.peer, cancel),
            on_close=lambda _: self._left(guest),
            input_timeout=timeout,
        )
        guest.connect(peer)
        self.guests[peer] = guest
        peer.start()
        return peer

    def answer_inline(self, exchange: Exchange) -> Answer:
        return None

    def hides(self, principal: Principal) -> bool:
        """Return True if the client's view does not have this server."""
        return not self._gateway.view_for(principal).includes(self._member.name)

    def tool_param_headers(self, tool: str, principal: Principal) -> tuple[ParamHeader, ...]:
        """Which arguments of a tool travel as headers too; to the server we send our own."""
        catalog, server = self._gateway.catalog, self._member.name
        merged = catalog.merged_name(ListKind.TOOLS, server, tool)
        view = self._gateway.view_for(principal)
        if merged is None or not view.includes(server):
            return ()
        if self._restricts(view) and not catalog.has(
            ListKind.TOOLS, server, tool, self._narrowed(view)
        ):
            return ()
        return self._gateway.merged_param_headers(merged)

    def on_stateless_notification(
        self, note: Notification, caller: Caller, context: TransportContext
    ) -> None:
        """A notification of a stateless client over HTTP."""
        view = self._gateway.view_of(caller)
        if view.includes(self._member.name) and not self._restricts(view):
            relay = self._member.replicas[0].relay
            self._alone.put_stateless(
                note,
                caller,
                context,
                lambda passed: relay.on_stateless_notification(passed, caller, context),
            )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """It is open as long as the gateway is."""
        yield None

    async def end_streams(self) -> None:
        """Hang up on everybody who only listens."""
        for replica in self._member.replicas:
            await replica.end_streams()

    def end_listen_streams(self, principals: Container[Principal]) -> None:
        """End what stateless clients listen to; who may come again asks for what it may hear."""
        for edge, name in self.listening.values():
            if name in principals:
                for replica in self._member.replicas:
                    replica.hang_up(edge)

    def views_changed(self, principals: Container[Principal]) -> None:
        """What these get to see has changed."""
        self._views.clear()
        self.end_listen_streams(principals)
        for guest in list(self.guests.values()):
            if guest.principal in principals:
                _tell_of_lists(guest)
                self._narrow(guest)

    def _narrow(self, guest: Guest) -> None:
        view = self._gateway.view_for(guest.principal)
        if not view.includes(self._member.name):
            self._member.left(guest)
            return
        for replica in self._member.replicas:
            front = guest.fronts.get(replica.relay)
            if front is not None:
                replica.relay.unwatch(front, view.permits_uri)

    async def close(self) -> None:
        """End all clients."""
        self._alone.close()
        for guest in list(self.guests.values()):
            await guest.peer.close()

    def _told(self, guest: Guest, note: Notification) -> None:
        for replica in self._member.replicas:
            front = guest.fronts.get(replica.relay)
            if front is not None:
                replica.relay.told(front, note)

    def _left(self, guest: Guest) -> None:
        self.guests.pop(guest.peer, None)
        guest.close()
        self._member.left(guest)
        guest.watched.clear()

    # Requests

    async def handler(self, exchange: Exchange) -> Answer:
        """Answer a request."""
        self._under_way += 1
        self._quiet.clear()
        try:
            exchange.server = self._member.name
            guest = self.guests.get(exchange.edge)
            if guest is not None:
                await guest.passage.passed()
            kind = _NAMED.get(exchange.method) if self._interceptors else None
            if kind is not None and exchange.target is not None:
                await self._introduced()
                exchange = self._as_merged(kind, exchange, exchange.target)
            if guest is None:
                return await self._gateway.until_disconnected(exchange, self._inner(exchange))
            return await self._inner(exchange)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()

    async def wait_until_idle(self) -> None:
        """Wait until nobody waits for an answer; not for long, the server has gone."""
        try:
            async with asyncio.timeout(GRACE):
                while self._under_way:
                    await self._quiet.wait()
        except TimeoutError:
            pass
        await asyncio.sleep(0)  # and the answers are sent

    def _as_merged(self, kind: ListKind, exchange: Exchange, own: str) -> Exchange:
        """As interceptors know it; what the server does not list, as they would."""
        server = self._member.name
        merged = self._gateway.catalog.merged_name(kind, server, own) or full_name(server, own)
        exchange = with_members(exchange, name=merged)
        exchange.alias = own
        return exchange

    async def _introduced(self) -> None:
        """Before a server has said what it has, nobody knows how that is called here.

        Raises:
            RpcError: it is still starting.
        """
        if not self._member.introduced.is_set():
            refused = await self._member.introduction()
            if refused is not None:
                raise refused

    async def _judge(self, exchange: Exchange) -> Answer:
        view = self._gateway.view_of(exchange.caller)
        guest = self.guests.get(exchange.edge)
        self._check_included(view)
        if self._restricts(view):
            view = self._narrowed(view)
            method = exchange.method
            if (kind := _LISTS.get(method)) is not None:
                return await self._page(kind, exchange, view)
            if method == "subscriptions/listen":
                uris = [uri for uri in uris_of(exchange) if view.permits_uri(uri)]
                exchange = listen_request_for(exchange, uris)
                principal = exchange.caller.principal
                exchange.permits = lambda uri: self._permits(principal, uri)
            elif method not in _FOR_ALL:
                await self._introduced()
                view = self._gateway.view_of(exchange.caller)  # as it is by now
                self._check_included(view)
                self._check(exchange, self._narrowed(view))
        if exchange.method != "subscriptions/listen":
            return await self._pass(exchange, guest)
        listener = object()  # there may be several of one connection
        self.listening[listener] = exchange.edge, exchange.caller.principal
        try:
            return await self._pass(exchange, guest)
        finally:
            del self.listening[listener]

    async def _pass(self, exchange: Exchange, guest: Guest | None) -> Answer:
        params = exchange.message.params
        if guest is not None and exchange.method == "initialize":
            guest.introduction = params.copy() if isinstance(params, Raw) else Raw(b"{}")
        answer = await self._member.answer(exchange, guest)
        if guest is not None and exchange.method == "logging/setLevel":
            level = level_of(exchange)
            guest.level = level if level in LEVELS else guest.level
        return answer

    def _check_included(self, view: View) -> None:
        """Raises `RpcError`: the view does not have this server."""
        if not view.includes(self._member.name):
            raise own_error(INVALID_PARAMS, f"There is no server {self._member.name!r} here")

    def _restricts(self, view: View) -> bool:
        everything = View.everything()
        return self._member.filtered or (view.allow, view.deny, view.hide) != (
            everything.allow,
            everything.deny,
            everything.hide,
        )

    def _permits(self, principal: Principal, uri: str) -> bool:
        """Return True if a client may hear of a resource, as its view is now."""
        view = self._gateway.view_for(principal)
        return view.includes(self._member.name) and view.permits_uri(uri)

    def _narrowed(self, view: View) -> View:
        """The same view of this server alone: what others have too is here all the same."""
        narrow = self._views.get(view)
        if narrow is None:
            narrow = msgspec.structs.replace(view, servers=(self._member.name,))
            self._views[view] = narrow
        return narrow

    async def _page(self, kind: ListKind, exchange: Exchange, view: View) -> bytes:
        """A list of the server as the view has it, on one page."""
        await self._gateway.listed()
        caller = exchange.caller
        members = self._gateway.catalog.own_page(kind, self._member.name, view, caller.revision)
        return self._gateway.framed(members, caller)

    def _check(self, exchange: Exchange, view: View) -> None:
        """Raises `RpcError` for what the view does not have."""
        method, catalog = exchange.method, self._gateway.catalog
        if (kind := _NAMED.get(method)) is not None:
            own = exchange.alias or exchange.target or ""
            if not catalog.has(kind, self._member.name, own, view):
                what = "tool" if kind is ListKind.TOOLS else "prompt"
                raise own_error(INVALID_PARAMS, f"Unknown {what}: {own}")
        elif method in ("resources/read", "resources/subscribe"):
            uri = exchange.head.uri
            if isinstance(uri, UnsetType) or not view.permits_uri(uri):
                code = INVALID_PARAMS if exchange.caller.stateless else RESOURCE_NOT_FOUND
                raise own_error(code, f"Resource not found: {exchange.target}", uri=exchange.target)
        elif method == "completion/complete":
            reference = reference_of(exchange)
            known = (
                view.permits_uri(reference.uri)
                if reference.uri is not None
                else catalog.has(ListKind.PROMPTS, self._member.name, reference.name or "", view)
            )
            if not known:
                raise own_error(INVALID_PARAMS, "There is nothing of that name to complete")
        else:
            raise own_error(METHOD_NOT_FOUND, f"Method not found: {method}")


def _tell_of_lists(guest: Guest) -> None:
    """Every list may have changed for a client; one that has asked nothing yet has seen none."""
    front = next(iter(guest.fronts.values()), None)
    if front is not None and guest.peer.conversation.state is SessionState.ACTIVE:
        for kind in ("tools", "resources", "prompts"):
            news = Notification(f"notifications/{kind}/list_changed")
            guest.news.put(news, guest.peer, front.outbox.put)
