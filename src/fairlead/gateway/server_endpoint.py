"""The endpoint `/mcp/NAME` of one server, under the names that the server itself uses.

Requests of a client with an unrestricted view are forwarded as by a relay, so that all features of
the server work. For a client with a restricted view, lists come from the gateway's catalog, and
items outside the view are unknown, as at the merged endpoint. Interceptors see merged names, so
policies for a tool apply here too. Names that a view assigns apply to the merged endpoint only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, UnsetType

from ..interceptor import Answer, Exchange, Handler, Interceptor, chain, malformed_frame_hook
from ..peer import Peer
from ..peer.notification_pipeline import NotificationPipeline
from ..protocol.caller import ANONYMOUS, Caller, Principal
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.envelope import Direction, SessionState, TransportContext
from ..protocol.headers import ParamHeader
from ..protocol.methods import METHOD_NAMES
from ..protocol.outgoing_params import Identity
from ..protocol.own_errors import own_error
from ..protocol.targets.list_kind import ListKind
from ..protocol.targets.unique_names import full_name
from ..relay.request_params import level_of, listen_request_for, reference_of, uris_of, with_members
from ..server.features.subscription_quota import SubscriptionQuota
from ..server.http_app.endpoint_handler import EndpointHandler
from ..server.results.result_envelope import ResultEnvelope
from ..transport import timeouts
from ..transport.channel import Channel
from ..upstream.connection.relayed_call import LEVELS
from ..wire import Notification
from ..wire.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from .backends.backend import Member
from .catalog.list_requests import MergedLists
from .catalog.merged_catalog import MergedCatalog
from .catalog.unknown_items import UnknownItems
from .catalog.views import ClientViews, View
from .clients.client_sessions import SingleServerClient
from .task_owners import TaskOwners

__all__ = ["SingleServerEndpoint"]

GRACE: Final = 1.0  # seconds that a removed server has for its last responses

_NAMED: Final = {"tools/call": ListKind.TOOLS, "prompts/get": ListKind.PROMPTS}
# Methods that are allowed in any view, because they cannot disclose an item outside the view.
_UNCHECKED: Final = (
    "initialize",
    "logging/setLevel",
    "ping",
    "resources/unsubscribe",
    "server/discover",
)

_Restricted: TypeAlias = Callable[[Exchange, View], Awaitable[Answer]]
_Check: TypeAlias = Callable[[Exchange, View], None]


class SingleServerEndpoint(EndpointHandler):
    """Endpoint that serves the clients of one server."""

    def __init__(
        self,
        member: Member,
        *,
        info: dict[str, Any],
        catalog: MergedCatalog,
        lists: MergedLists,
        views: ClientViews,
        unknown: UnknownItems,
        envelope: ResultEnvelope,
        quota: SubscriptionQuota,
        interceptors: Sequence[Interceptor],
        until_disconnected: Callable[[Exchange, Awaitable[Answer]], Awaitable[Answer]],
    ) -> None:
        """`until_disconnected` waits for the result of a call that belongs to no connection."""
        self._member = member
        self._filters_tools = member.spec.filters_tools
        self._info = info
        self._catalog = catalog
        self._lists = lists
        self._views = views
        self._unknown = unknown
        self._envelope = envelope
        self._quota = quota
        self._interceptors = interceptors
        self._until_disconnected = until_disconnected
        self.on_malformed = malformed_frame_hook(interceptors)
        self._stateless_notifications = NotificationPipeline(
            interceptors, Direction.CLIENT_TO_SERVER
        )
        self._intercepted: Handler = chain(interceptors, self._answer)
        # By method; requests with any other method are forwarded unchanged.
        self._handlers: dict[str, Handler] = {
            "initialize": self._initialize,
            "logging/setLevel": self._set_level,
            "subscriptions/listen": self._listen,
        }
        # By method, for clients with a restricted view.
        # Other methods are refused, because they might disclose items outside the view.
        self._restricted: dict[str, _Restricted] = {
            **{kind.method: partial(self._list, kind) for kind in ListKind},
            **dict.fromkeys(_UNCHECKED, self._answer_unchecked),
            "subscriptions/listen": self._listen_restricted,
            "tools/call": partial(self._answer_checked, self._check_name),
            "prompts/get": partial(self._answer_checked, self._check_name),
            "resources/read": partial(self._answer_checked, self._check_uri),
            "resources/subscribe": partial(self._answer_checked, self._check_uri),
            "completion/complete": partial(self._answer_checked, self._check_reference),
        }
        self._refuse: _Restricted = partial(self._answer_checked, _reject_method)
        self.clients: dict[object, SingleServerClient] = {}  # by peer
        # Listen streams of stateless clients: the connection and the principal of each stream.
        self.listeners: dict[object, tuple[object, Principal]] = {}
        self._restricted_views: dict[View, View] = {}
        self._tasks = TaskOwners()
        self._pending = 0
        self._idle = asyncio.Event()  # set while no request is pending

    # Interface of an endpoint

    def attach(self, channel: Channel, principal: Principal) -> Peer:
        """Serve one client in the background. Close the returned peer to disconnect it."""
        client = SingleServerClient(
            principal,
            self._interceptors,
            self._quota,
            permits=lambda uri: self._permits(principal, uri),
        )
        peer = Peer(
            channel,
            Conversation(
                ConversationRole.SERVER, Identity(self._info), relays=True, principal=principal
            ),
            handler=self.handler,
            on_notification=lambda note: client.incoming.put(
                note, client.peer, lambda passed: self._forward_notification(client, passed)
            ),
            on_cancelled=lambda note, cancel: client.incoming.cancel(note, client.peer, cancel),
            on_close=lambda _: self._disconnected(client),
        )
        client.connect(peer)
        self.clients[peer] = client
        peer.start()
        return peer

    def hides(self, principal: Principal) -> bool:
        """Return True if the client's view does not include this server."""
        return not self._views.view_for(principal).includes(self._member.name)

    def tool_param_headers(self, tool: str, principal: Principal) -> tuple[ParamHeader, ...]:
        """Return the arguments of a tool that clients also send as headers."""
        catalog, server = self._catalog, self._member.name
        merged = catalog.merged_name(ListKind.TOOLS, server, tool)
        view = self._views.view_for(principal)
        if merged is None or not view.includes(server):
            return ()
        if self._restricts(view) and not catalog.has(
            ListKind.TOOLS, server, tool, self._for_this_server(view)
        ):
            return ()
        return catalog.param_headers(merged, View.everything())

    def on_stateless_notification(
        self, note: Notification, caller: Caller, context: TransportContext
    ) -> None:
        """Forward a notification of a stateless client.

        Notifications of clients with a restricted view are dropped, because they may name any item.
        """
        view = self._views.view_of(caller)
        if view.includes(self._member.name) and not self._restricts(view):
            relay = self._member.replicas[0]
            self._stateless_notifications.put_stateless(
                note,
                caller,
                context,
                lambda passed: relay.on_stateless_notification(passed, caller, context),
            )

    async def end_streams(self) -> None:
        """End the listen streams of all clients."""
        for relay in self._member.replicas:
            await relay.end_streams()

    # Clients

    def end_listen_streams(self, principals: Container[Principal]) -> None:
        """End the listen streams of these principals. The principals may open new streams."""
        for edge, name in self.listeners.values():
            if name in principals:
                for relay in self._member.replicas:
                    relay.hang_up(edge)

    def views_changed(self, principals: Container[Principal]) -> None:
        """Apply the changed views of these principals."""
        self._restricted_views.clear()
        self.end_listen_streams(principals)
        # A copy, because clients may disconnect during the loop.
        for client in list(self.clients.values()):
            if client.principal in principals:
                _notify_of_lists(client)
                self._narrow(client)

    def _narrow(self, client: SingleServerClient) -> None:
        view = self._views.view_for(client.principal)
        if not view.includes(self._member.name):
            self._member.replicas.leave(client)
            return
        for relay in self._member.replicas:
            session = client.sessions.get(relay)
            if session is not None:
                relay.unwatch(session, view.permits_uri)

    async def close(self) -> None:
        """Close the connections of all clients."""
        self._stateless_notifications.close()
        for client in list(self.clients.values()):
            await client.peer.close()

    def _forward_notification(self, client: SingleServerClient, note: Notification) -> None:
        view = self._views.view_for(client.principal)
        if self._restricts(view) and note.method not in METHOD_NAMES:
            return  # it may name an item outside the view
        for relay in self._member.replicas:
            session = client.sessions.get(relay)
            if session is not None:
                relay.told(session, note)

    def _disconnected(self, client: SingleServerClient) -> None:
        self.clients.pop(client.peer, None)
        client.close()
        self._member.replicas.leave(client)
        client.watched.clear()

    # Requests

    async def handler(self, exchange: Exchange) -> Answer:
        """Answer a request."""
        self._pending += 1
        self._idle.clear()
        try:
            exchange.server = self._member.name
            client = self.clients.get(exchange.edge)
            if client is not None:
                # Notifications that arrived before the request must take effect first.
                await client.incoming.passed()
            kind = _NAMED.get(exchange.method) if self._interceptors else None
            if kind is not None and exchange.target is not None:
                await self._introduced()
                exchange = self._as_merged(kind, exchange, exchange.target)
            answer = self._intercepted(exchange)
            if client is None and exchange.caller.principal is not ANONYMOUS:
                answer = self._until_disconnected(exchange, answer)
            return await answer
        finally:
            self._pending -= 1
            if not self._pending:
                self._idle.set()

    async def wait_until_idle(self) -> None:
        """Wait at most `GRACE` seconds until all requests to the removed server are answered."""
        with suppress(TimeoutError):
            async with timeouts.timeout(GRACE):
                while self._pending:
                    await self._idle.wait()
        # Let the tasks of the last requests send their responses.
        await asyncio.sleep(0)

    def _as_merged(self, kind: ListKind, exchange: Exchange, own: str) -> Exchange:
        """Return the request under the merged name, for policies; `alias` is the server's name."""
        server = self._member.name
        merged = self._catalog.merged_name(kind, server, own) or full_name(server, own)
        exchange = with_members(exchange, name=merged)
        exchange.alias = own
        return exchange

    async def _introduced(self) -> None:
        """Wait until the server has listed its items, because merged names are unknown until then.

        Raises:
            RpcError: The server is still starting.
        """
        if not self._member.introduced.is_set():
            refused = await self._member.introduction()
            if refused is not None:
                raise refused

    def _answer(self, exchange: Exchange) -> Awaitable[Answer]:
        view = self._views.view_of(exchange.caller)
        self._check_included(view)
        if self._restricts(view):
            handle = self._restricted.get(exchange.method, self._refuse)
            return handle(exchange, self._for_this_server(view))
        forward = self._handlers.get(exchange.method, self._forward)
        if exchange.caller.principal is ANONYMOUS:
            return forward(exchange)
        return self._tasks.answer(exchange, forward)

    def _forward(self, exchange: Exchange) -> Awaitable[Answer]:
        return self._member.replicas.answer(exchange, self.clients.get(exchange.edge))

    async def _initialize(self, exchange: Exchange) -> Answer:
        client, params = self.clients.get(exchange.edge), exchange.message.params
        if client is not None:
            # A copy, because `params` refers to the buffer of a message and the client outlives it.
            client.introduction = params.copy() if isinstance(params, Raw) else Raw(b"{}")
        return await self._member.replicas.answer(exchange, client)

    async def _set_level(self, exchange: Exchange) -> Answer:
        client = self.clients.get(exchange.edge)
        answer = await self._member.replicas.answer(exchange, client)
        if client is not None:
            # Stored after the response, because a level that the server refuses must not apply.
            level = level_of(exchange)
            client.level = level if level in LEVELS else client.level
        return answer

    async def _listen(self, exchange: Exchange) -> Answer:
        # A key of its own, because one connection may have several listen streams.
        listener = object()
        self.listeners[listener] = exchange.edge, exchange.caller.principal
        try:
            return await self._forward(exchange)
        finally:
            del self.listeners[listener]

    # Restricted views

    def _answer_unchecked(self, exchange: Exchange, view: View) -> Awaitable[Answer]:
        return self._handlers.get(exchange.method, self._forward)(exchange)

    async def _answer_checked(self, check: _Check, exchange: Exchange, view: View) -> Answer:
        client = self.clients.get(exchange.edge)
        await self._introduced()
        # Read again, because the view may have changed during the wait.
        view = self._views.view_of(exchange.caller)
        self._check_included(view)
        check(exchange, self._for_this_server(view))
        return await self._member.replicas.answer(exchange, client)

    async def _list(self, kind: ListKind, exchange: Exchange, view: View) -> bytes:
        """Return the items of a list that the view includes, on one page."""
        await self._lists.ready()
        caller = exchange.caller
        members = self._catalog.own_page(kind, self._member.name, view, caller.revision)
        return self._envelope.listed(members, caller)

    def _listen_restricted(self, exchange: Exchange, view: View) -> Awaitable[Answer]:
        uris = [uri for uri in uris_of(exchange) if view.permits_uri(uri)]
        exchange = listen_request_for(exchange, uris)
        principal = exchange.caller.principal
        # Looked up for each notification, because the view may change while the stream is open.
        exchange.permits = lambda uri: self._permits(principal, uri)
        return self._listen(exchange)

    def _check_name(self, exchange: Exchange, view: View) -> None:
        """Raise `RpcError` for a tool or prompt outside the view."""
        kind, own = _NAMED[exchange.method], exchange.alias or exchange.target or ""
        if not self._catalog.has(kind, self._member.name, own, view):
            raise self._unknown.error(kind, own, exchange, view, server=self._member.name)

    def _check_uri(self, exchange: Exchange, view: View) -> None:
        """Raise `RpcError` for a resource outside the view."""
        uri = exchange.head.uri
        if isinstance(uri, UnsetType) or not view.permits_uri(uri):
            raise self._unknown.error(
                ListKind.RESOURCES, exchange.target, exchange, view, server=self._member.name
            )

    def _check_reference(self, exchange: Exchange, view: View) -> None:
        """Raise `RpcError` for a completion that refers to an item outside the view."""
        reference = reference_of(exchange)
        server, kind, name = self._member.name, ListKind.TEMPLATES, reference.uri
        if name is not None:
            known = view.permits_uri(name)
        else:
            kind, name = ListKind.PROMPTS, reference.name
            known = self._catalog.has(kind, server, name or "", view)
        if not known:
            raise self._unknown.error(kind, name, exchange, view, server=server)

    def _check_included(self, view: View) -> None:
        """Raise `RpcError` if the view does not include this server."""
        if not view.includes(self._member.name):
            raise own_error(INVALID_PARAMS, f"Unknown server: {self._member.name}")

    def _restricts(self, view: View) -> bool:
        return self._filters_tools or view.selects_items

    def _permits(self, principal: Principal, uri: str) -> bool:
        """Return True if the current view of a client permits notifications about a resource."""
        view = self._views.view_for(principal)
        return view.includes(self._member.name) and view.permits_uri(uri)

    def _for_this_server(self, view: View) -> View:
        """Return the view reduced to this server, so that no other server owns a URI."""
        alone = self._restricted_views.get(view)
        if alone is None:
            alone = msgspec.structs.replace(view, servers=(self._member.name,))
            self._restricted_views[view] = alone
        return alone


def _reject_method(exchange: Exchange, view: View) -> None:
    raise own_error(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")


def _notify_of_lists(client: SingleServerClient) -> None:
    """Notify a client that all its lists may have changed, if it has completed the handshake."""
    session = next(iter(client.sessions.values()), None)
    if session is not None and client.peer.conversation.state is SessionState.ACTIVE:
        for kind in ("tools", "resources", "prompts"):
            note = Notification(f"notifications/{kind}/list_changed")
            client.outgoing.put(note, client.peer, session.outbox.put)
