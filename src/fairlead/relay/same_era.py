"""Forwarding between a client and a server of the same era."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from msgspec import Raw

from ..errors import FairleadError, RpcError
from ..interceptor import Answer, Exchange
from ..protocol.caller import SUBSCRIPTION_KEY, Caller, can_be_asked
from ..protocol.downgrade.results import downgrade_result
from ..protocol.identity.client_key import connection_key
from ..protocol.json_edit import encoded, members_of, string_of
from ..protocol.own_errors import own_error
from ..protocol.revisions import Revision
from ..server.features.subscription_quota import SubscriptionQuota
from ..transport.http.server.asgi import HeaderMap
from ..transport.http.server.token_expiry import expiring
from ..upstream.connection.connection_pool import UpstreamPool
from ..upstream.connection.relayed_call import ASKING, LEVELS, RelayedCall, RelayedParams, params_of
from ..upstream.connection.upstream_connection import Turn, UpstreamConnection, remove_subscriber
from ..wire import RequestId
from ..wire.error_codes import INTERNAL_ERROR
from .client_session import ClientSession
from .request_params import uris_of

__all__ = ["SameEraForwarder", "stop_watching"]

log = logging.getLogger("fairlead.gateway")


class SameEraForwarder:
    """Forwarder of requests to servers of the same era as the client.

    Nearly all values are forwarded unchanged. Several clients may share one process of a
    handshake-era server, so their log levels and subscriptions are merged. Calls during which the
    server may request input take turns.
    """

    def __init__(
        self,
        pool: UpstreamPool,
        quota: SubscriptionQuota,
        move: Callable[[ClientSession, Caller], Awaitable[UpstreamConnection]],
    ) -> None:
        """`move` moves a session to another connection and returns that connection."""
        self._move = move
        self._pool = pool
        self._quota = quota
        # subscriptions of stateless clients, with the reply path of the client
        self._listening: dict[asyncio.Future[Raw], object] = {}

    # Stateless

    async def forward_stateless(
        self, exchange: Exchange, session: ClientSession | None, connection: UpstreamConnection
    ) -> Answer:
        """Forward a request without a session to a stateless server.

        Raises:
            RpcError: The server refused the request.
            TransportError: The server cannot be reached, or the connection was lost.
        """
        call = RelayedCall(exchange, session)
        passing = params_of(exchange)
        timeout = self._pool.settings.call_timeout
        if exchange.method == "subscriptions/listen":
            key = connection_key(exchange.caller.principal, exchange.transport, exchange.edge)
            with self._quota.listening(key, exchange.edge, _uri_count(exchange)):
                # A subscription has no timeout, because it lasts until one side ends it.
                return await self._listen(exchange, connection.pass_on(call, passing, timeout=0))
        if exchange.method == "server/discover":
            return _with_our_versions(await connection.pass_on(call, passing, timeout=timeout))
        headers = exchange.transport.headers
        channel = connection.peer.channel
        # Only HTTP requests have a `HeaderMap`; other transports have no such headers.
        on_sent: Callable[[RequestId], None] | None = None
        if (
            channel.carries_headers
            and isinstance(headers, HeaderMap)
            and exchange.method == "tools/call"
            and (given := headers.starting_with(b"mcp-param-"))
        ):
            on_sent = partial(channel.add_headers, headers=given)
        return await connection.pass_on(call, passing, timeout=timeout, on_sent=on_sent)

    async def _listen(self, exchange: Exchange, stream: Coroutine[Any, Any, Raw]) -> Answer:
        """Keep a subscription open until the client, the server or `hang_up` ends it, or until the
        access token of the client expires.
        """
        work = asyncio.ensure_future(stream)
        self._listening[work] = exchange.edge
        principal = exchange.caller.principal
        try:
            with expiring(lambda: principal, work.cancel):
                await asyncio.wait((work,))
        finally:
            del self._listening[work]
            # Cancel the request, and wait until the cancellation has been sent to the server.
            work.cancel()
            await asyncio.wait((work,))
        result = Raw(b'{"resultType":"complete"}') if work.cancelled() else work.result()
        return _tagged(result, exchange)

    def hang_up(self, edge: object | None = None) -> None:
        """End the subscriptions of one client, or of all clients."""
        for work, whose in list(self._listening.items()):
            if edge in (None, whose):
                work.cancel()

    # Handshake era

    def initialized(
        self, exchange: Exchange, session: ClientSession, connection: UpstreamConnection
    ) -> Answer:
        """Return the server's result of `initialize`, in the revision that the client requested."""
        introduction, agreement = connection.introduction, connection.agreement
        assert introduction is not None
        assert agreement is not None
        asked, theirs = exchange.caller.revision, agreement.revision
        # The result may name an older revision. A newer revision may be unknown to the client.
        if theirs < asked:
            session.peer.conversation.set_revision(theirs)
        members = members_of(introduction) if theirs > asked else None
        if members is None:
            return introduction
        members["protocolVersion"] = encoded(asked.value)
        return downgrade_result("initialize", encoded(members), asked)

    async def forward_in_session(
        self, exchange: Exchange, session: ClientSession | None, connection: UpstreamConnection
    ) -> Answer:
        """Forward a request to a server of the handshake era.

        Raises:
            RpcError: The server refused the request, or other clients occupy it.
            TransportError: The server cannot be reached, or the connection was lost.
        """
        method = exchange.method
        call = RelayedCall(exchange, session)
        passing = params_of(exchange)
        level = None if session is None else session.level
        watched = session is not None and exchange.target in session.uris
        if session is not None:
            local = _note_wishes(exchange, session, connection, passing)
            if local is not None:
                return local
        turn = None
        shared = session is not None and method in ASKING and not connection.correlates_calls
        if session is not None and shared and can_be_asked(exchange.caller.capabilities):
            connection, turn = await self._take_turn(connection, session, exchange.caller)
        try:
            timeout = self._pool.settings.call_timeout
            result = await connection.pass_on(call, passing, timeout=timeout, turn=turn)
        # `BaseException`, because a cancellation also has to undo the record:
        # the server has not confirmed the subscription or level.
        except BaseException:
            if method == "resources/subscribe" and session is not None and not watched:
                stop_watching(exchange.target, session, connection)
            elif method == "logging/setLevel" and session is not None:
                session.level = level
            raise
        assert connection.agreement is not None
        revision = exchange.caller.revision
        if connection.agreement.revision > revision:
            return downgrade_result(method, result, revision)
        return result

    async def _take_turn(
        self, connection: UpstreamConnection, session: ClientSession, caller: Caller
    ) -> tuple[UpstreamConnection, Turn]:
        """Wait until no other session has a call during which the server may request input.

        On a shared stream, a server's request does not name the call that it belongs to. A session
        that has waited too long gets another connection. A session with an unanswered request of
        the server does not wait, because it may have to send a request before it can respond.
        """
        urgent = session.asked > 0
        busy = any(call.session is session for call in connection.calls.values())
        if not connection.borrowed and not busy:
            try:
                wait = self._pool.settings.turn_wait
                return connection, await connection.turns.take(session, wait, urgent=urgent)
            except TimeoutError:
                pass
            try:
                connection = await self._move(session, caller)
            except FairleadError as exc:
                log.debug("%s: no other connection: %s", connection.name, exc)
        try:
            timeout = self._pool.settings.turn_timeout
            return connection, await connection.turns.take(session, timeout, urgent=urgent)
        except TimeoutError:
            raise own_error(
                INTERNAL_ERROR, f"{connection.name} is busy: other clients use it. Try again later"
            ) from None


def stop_watching(uri: str | None, session: ClientSession, connection: UpstreamConnection) -> bool:
    """Remove a session from the subscribers of a resource. Return True if others remain."""
    if uri is None:
        return False
    session.uris.discard(uri)
    remove_subscriber(connection, uri, session)
    return uri in connection.uris


def _note_wishes(
    exchange: Exchange,
    session: ClientSession,
    connection: UpstreamConnection,
    passing: RelayedParams,
) -> Answer:
    """Record the log level or subscription that a session requests. Return a result if the request
    need not be forwarded.

    This happens before the server responds, because the next notification may already concern the
    session.
    """
    match exchange.method:
        case "logging/setLevel":
            level = string_of((passing.members or {}).get("level"))
            if level not in LEVELS:
                return None  # an unknown level is forwarded, and the server refuses it
            session.level = level
            others = [
                f.level for f in connection.sessions if f is not session and f.level is not None
            ]
            # A connection has the lowest level of its sessions; each session drops lower messages.
            if others:
                passing.replace("level", min((level, *others), key=LEVELS.index))
        case "resources/subscribe" if exchange.target is not None:
            session.uris.add(exchange.target)
            connection.uris.setdefault(exchange.target, set()).add(session)
        case "resources/unsubscribe" if exchange.target is not None:
            if connection.borrowed and exchange.target not in session.uris:
                return b"{}"  # the gateway may still be subscribed for other clients
            if stop_watching(exchange.target, session, connection):
                return b"{}"  # another session is still subscribed
    return None


def _uri_count(exchange: Exchange) -> int:
    """Return the number of resources that a request subscribes to; 0 if its params are invalid."""
    try:
        return len(uris_of(exchange))
    except RpcError:
        # The server will refuse the params.
        return 0


def _with_our_versions(discovered: Raw) -> Raw:
    """Return the result of `server/discover` with the revisions that the relay supports."""
    members = members_of(discovered)
    if members is None:
        return discovered
    spoken = [revision.value for revision in reversed(Revision)]
    return encoded({**members, "supportedVersions": spoken})


def _tagged(result: Raw, exchange: Exchange) -> Raw:
    """Return the final result of a subscription with the id of the client's request."""
    members = members_of(result)
    meta = None if members is None else members_of(members.get("_meta", Raw(b"{}")))
    if members is None or meta is None:
        return result
    meta[SUBSCRIPTION_KEY] = encoded(exchange.request_id)
    return encoded({**members, "_meta": meta})
