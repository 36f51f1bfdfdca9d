"""Subscriptions of clients to resources, in both eras."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from msgspec import Struct, UnsetType

from ...errors import LocalProtocolError, RpcError
from ...interceptor import Answer, Exchange
from ...protocol.caller import Caller, Principal
from ...protocol.own_errors import own_error
from ...relay.client_session import ClientSession
from ...relay.request_params import listen_request_for, uris_of
from ...relay.same_era import stop_watching
from ...server.features.change_broadcaster import UPDATED, ChangeBroadcaster
from ...transport.background_tasks import BackgroundTasks
from ...upstream.connection.caller_subscriptions import CallerSubscription
from ...upstream.connection.upstream_connection import UpstreamConnection
from ...upstream.list_variants import VariantKey, variant_key
from ...upstream.upstream import Upstream
from ...wire.error_codes import INTERNAL_ERROR
from ..backends.backend import Member
from ..backends.registry import BackendRegistry
from ..catalog.list_requests import MergedLists
from ..catalog.merged_catalog import MergedCatalog
from ..catalog.routing import Router
from ..catalog.views import ClientViews
from ..handshake_results import CAPABILITIES
from .client_sessions import ConnectedClient
from .upstream_subscriptions import URIS_PER_TURN, UpstreamSubscriptions

__all__ = ["ClientSubscriptions", "StatelessListener"]


class StatelessListener(Struct, frozen=True, eq=False):
    """A stateless client with an open listen stream."""

    edge: object
    caller: Caller
    uris: list[str]

    @property
    def principal(self) -> Principal:
        return self.caller.principal


class ClientSubscriptions(Struct, eq=False):
    """Subscriptions of clients, at the broadcaster and at the servers that own the resources.

    `deadline` is the number of seconds to wait for a server that is slow to subscribe.
    """

    upstream: UpstreamSubscriptions
    changes: ChangeBroadcaster
    catalog: MergedCatalog
    registry: BackendRegistry
    router: Router
    lists: MergedLists
    views: ClientViews
    tasks: BackgroundTasks
    deadline: float
    listeners: set[StatelessListener] = set()

    async def subscribe(self, exchange: Exchange, client: ConnectedClient | None) -> bytes:
        """Subscribe a client of the handshake era to a resource.

        Raises:
            RpcError: No server has the resource, or its server refused the subscription.
        """
        member = await self.router.resource(exchange)
        uri = exchange.head.uri
        assert isinstance(uri, str)
        # Before the request to the server, because the first notification may precede its response.
        self.changes.subscribe(exchange.edge, uri)
        if client is not None and not client.gone and client.uris.get(uri) != member.name:
            # If another server owned the resource before, the subscription there ends.
            self.unwatch(client, uri)
            client.uris[uri] = member.name
            subscribed = False
            try:
                subscribed = await self._subscribe_at(member, uri, client)
            finally:
                if not subscribed:  # refused, or the request was cancelled
                    client.uris.pop(uri, None)
                    self.changes.unsubscribe(exchange.edge, uri)
            if not subscribed:
                raise own_error(
                    INTERNAL_ERROR, f"Server {member.name!r} refused the subscription to {uri}"
                )
        return b"{}"

    async def _subscribe_at(self, member: Member, uri: str, client: ConnectedClient) -> bool:
        """Subscribe on the client's own connection, which its calls use, or on the default one."""
        for relay in member.replicas:
            session = client.sessions.get(relay)
            if session is not None and _has_own_connection(session):
                return await _subscribe_in_session(session, uri)
        for relay in member.replicas:
            # If the session gets its own connection later, the subscription is restored there.
            client.session_with(relay).uris.add(uri)
        return await self.upstream.add(member, uri, client, self.deadline)

    def session_attached(self, client: ConnectedClient, session: ClientSession) -> None:
        """End subscriptions on the default connection if the client has a connection of its own
        now.
        """
        if _has_own_connection(session):
            for uri in session.uris:
                if (owner := client.uris.get(uri)) is not None:
                    self.upstream.remove(owner, uri, client)
                    # The client now uses another process, in which the resource may differ.
                    self.changes.changed_for((client.peer,), UPDATED, uri)

    def session_lost(self, client: ConnectedClient, session: ClientSession) -> None:
        """Notify a client whose own connection was lost that its lists and resources may differ."""
        if session.connection is None and not client.gone:
            self.changes.all_lists_changed((client.peer,))
            for uri in session.uris:
                self.changes.changed_for((client.peer,), UPDATED, uri)

    async def unsubscribe(self, exchange: Exchange, client: ConnectedClient | None) -> bytes:
        """End the subscription of a client of the handshake era."""
        uri = exchange.head.uri
        if not isinstance(uri, UnsetType):
            self.changes.unsubscribe(exchange.edge, uri)
            self.unwatch(client, uri)
        return b"{}"

    def unwatch(self, client: ConnectedClient | None, uri: str) -> None:
        """End the client's subscription to a resource at the server that owns it."""
        if client is not None and (owner := client.uris.pop(uri, None)) is not None:
            self.upstream.remove(owner, uri, client)
            member = self.registry.members.get(owner)
            for relay in () if member is None else member.replicas:
                session = client.sessions.get(relay)
                if session is not None and uri in session.uris:
                    relay.unwatch(session, lambda other: other != uri)

    def narrow(self, client: ConnectedClient, permits: Callable[[str, str], bool]) -> None:
        """End the subscriptions of a client for which `permits(server, uri)` is False."""
        for uri, server in list(client.uris.items()):
            if not permits(server, uri):
                self.changes.unsubscribe(client.peer, uri)
                self.unwatch(client, uri)

    async def listen(self, exchange: Exchange) -> Answer:
        """Notify a stateless client of changes in lists, and in the resources that its view
        permits.

        Raises:
            RpcError: -32602, the client has too many streams or resources.
        """
        uris = uris_of(exchange)
        # Each URI is looked up, so URIs without a server count as well.
        with self.changes.admitted(exchange, len(uris)):
            if uris and not self.registry.is_ready:
                await self.lists.ready()
            return await self._listen(exchange, await self._owners(exchange, uris))

    async def _owners(self, exchange: Exchange, uris: list[str]) -> dict[str, Member]:
        """Return the servers of the resources that the client may see."""
        found: dict[str, Member] = {}
        view = self.views.view_of(exchange.caller)
        for number, uri in enumerate(uris, 1):
            member = self.registry.members.get(self.catalog.owner(uri, view) or "")
            if member is not None:
                found[uri] = member
            # Lets other tasks run, because a request may name thousands of URIs.
            if number % URIS_PER_TURN == 0:
                await asyncio.sleep(0)
        return found

    async def _listen(self, exchange: Exchange, watched: dict[str, Member]) -> Answer:
        listener = StatelessListener(exchange.edge, exchange.caller, [])
        try:
            subscribed = await self.upstream.add_all(watched, listener, self.deadline)
            # Read again, because the view may have changed during the wait.
            view = self.views.view_of(exchange.caller)
            listener.uris.extend(uri for uri in subscribed if view.permits_uri(uri))
            self.listeners.add(listener)
            granted = listen_request_for(exchange, listener.uris)
            with self._following_calls(listener, watched):
                return await self.changes.listen_admitted(granted, CAPABILITIES)
        finally:
            self.listeners.discard(listener)
            # In the background, because the stream may end by cancellation and have many URIs.
            self.tasks.start(self._remove(listener, watched))

    @contextmanager
    def _following_calls(
        self, listener: StatelessListener, watched: Mapping[str, Member]
    ) -> Iterator[None]:
        """Report changes that calls of the same client cause in processes of their own."""

        def changed(method: str, uri: str | None) -> None:
            # Changes of lists are reported after the lists were read again.
            if uri is not None:
                for one in [one for one in listener.uris if uri.startswith(one)]:
                    self.changes.changed_for((listener.edge,), UPDATED, one)

        with ExitStack() as stack:
            for upstream, uris in _by_upstream(listener.uris, watched).items():
                following = CallerSubscription(listener.caller, uris, changed)
                stack.enter_context(upstream.pool.callers.following(following))
            yield

    def listening(
        self, upstream: Upstream, whose: VariantKey | UpstreamConnection
    ) -> Iterator[object]:
        """Yield the connections of stateless listeners that see the lists of this variant, or of
        this connection to the server.
        """
        for one in self.listeners:
            if isinstance(whose, UpstreamConnection):
                if upstream.pool.serves(whose, one.caller):
                    yield one.edge
            elif variant_key(one.caller) == whose:
                yield one.edge

    async def _remove(self, listener: StatelessListener, watched: dict[str, Member]) -> None:
        for number, (uri, member) in enumerate(watched.items(), 1):
            self.upstream.remove(member.name, uri, listener)
            if number % URIS_PER_TURN == 0:
                await asyncio.sleep(0)


def _by_upstream(uris: Iterable[str], watched: Mapping[str, Member]) -> dict[Upstream, list[str]]:
    found: dict[Upstream, list[str]] = {}
    for uri in uris:
        for upstream in watched[uri].upstreams:
            found.setdefault(upstream, []).append(uri)
    return found


def _has_own_connection(session: ClientSession) -> bool:
    connection = session.connection
    return connection is not None and connection.alive and not connection.borrowed


async def _subscribe_in_session(session: ClientSession, uri: str) -> bool:
    """Subscribe on the connection of a session; return False if the server refuses."""
    connection = session.connection
    assert connection is not None
    watchers = connection.uris.setdefault(uri, set())
    first = not watchers
    # Before the request, so that a second session does not send another one.
    watchers.add(session)
    session.uris.add(uri)
    if first:
        try:
            await connection.peer.request("resources/subscribe", {"uri": uri})
        # A session must not stay registered after a cancellation either.
        except BaseException as exc:
            stop_watching(uri, session, connection)
            if isinstance(exc, RpcError | LocalProtocolError):
                return False
            raise
    return True
