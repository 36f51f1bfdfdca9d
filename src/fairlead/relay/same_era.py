"""Forwarding between a client and a server that speak the same era."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from msgspec import Raw

from ..errors import RpcError
from ..interceptor import Answer, Exchange
from ..protocol.caller import SUBSCRIPTION_KEY
from ..protocol.downgrade.results import downgrade_result
from ..protocol.identity.client_key import connection_key
from ..protocol.json_edit import encoded, members_of, string_of
from ..protocol.own_errors import own_error
from ..protocol.revisions import Revision
from ..server.features.subscription_quota import SubscriptionQuota
from ..wire.error_codes import INTERNAL_ERROR
from .bridge.client_capabilities import can_be_asked
from .client_session import Front
from .relay_settings import RelaySettings
from .relayed_call import ASKING, LEVELS, RelayedCall
from .relayed_params import RelayedParams, params_of
from .request_params import uris_of
from .turn_lock import Turn
from .upstream_connection import Link

__all__ = ["SameEraForwarder", "stop_watching"]


class SameEraForwarder:
    """Forwards requests to servers of the era that the client speaks.

    Nearly every value passes unchanged. A server of the handshake era may serve several clients
    with one process, so their levels and subscriptions are merged, and they take turns where the
    server may ask back.
    """

    def __init__(self, settings: RelaySettings, quota: SubscriptionQuota) -> None:
        self._settings = settings
        self._quota = quota
        self._listening: dict[asyncio.Future[Raw], object] = {}  # and the edge of its client

    # Stateless

    async def forward_stateless(
        self, exchange: Exchange, front: Front | None, link: Link
    ) -> Answer:
        """Forward a request that stands alone to a stateless server.

        Raises:
            RpcError: The server refused the request.
            TransportError: It could not be asked, or the connection was lost.
        """
        call = RelayedCall(exchange, front)
        passing = params_of(exchange)
        timeout = self._settings.call_timeout
        if exchange.method == "subscriptions/listen":
            key = connection_key(exchange.caller.principal, exchange.transport, exchange.edge)
            with self._quota.listening(key, exchange.edge, _uri_count(exchange)):
                return await self._listen(exchange, link.pass_on(call, passing, timeout=0))
        if exchange.method == "server/discover":
            return _with_our_versions(await link.pass_on(call, passing, timeout=timeout))
        headers = exchange.transport.headers
        channel = link.peer.channel
        if channel.carries_headers and headers is not None and exchange.method == "tools/call":
            given = {k: v for k, v in headers.items() if k.startswith("mcp-param-")}
            if given:
                return await link.pass_on(
                    call,
                    passing,
                    timeout=timeout,
                    on_sent=lambda sent: channel.add_headers(sent, given),
                )
        return await link.pass_on(call, passing, timeout=timeout)

    async def _listen(self, exchange: Exchange, stream: Coroutine[Any, Any, Raw]) -> Answer:
        """Keep a subscription open until the client, the server or `hang_up` ends it."""
        work = asyncio.ensure_future(stream)
        self._listening[work] = exchange.edge
        try:
            await asyncio.wait((work,))
        finally:
            del self._listening[work]
            work.cancel()
            await asyncio.wait((work,))  # the server is told
        result = Raw(b'{"resultType":"complete"}') if work.cancelled() else work.result()
        return _tagged(result, exchange)

    def hang_up(self, edge: object | None = None) -> None:
        """End the subscriptions of one client, or of all."""
        for work, whose in list(self._listening.items()):
            if edge in (None, whose):
                work.cancel()

    # With a handshake

    def initialized(self, exchange: Exchange, front: Front, link: Link) -> Answer:
        """Return the server's answer to `initialize`, in the revision that the client asked for."""
        introduction, agreement = link.introduction, link.agreement
        assert introduction is not None
        assert agreement is not None
        asked, theirs = exchange.caller.revision, agreement.revision
        if theirs < asked:
            front.peer.conversation.set_revision(theirs)
        members = members_of(introduction) if theirs > asked else None
        if members is None:
            return introduction
        members["protocolVersion"] = encoded(asked.value)
        return downgrade_result("initialize", encoded(members), asked)

    async def forward_in_session(
        self, exchange: Exchange, front: Front | None, link: Link
    ) -> Answer:
        """Forward a request to a server of the handshake era.

        Raises:
            RpcError: The server refused the request, or is in use by other clients.
            TransportError: It could not be asked, or the connection was lost.
        """
        method = exchange.method
        call = RelayedCall(exchange, front)
        passing = params_of(exchange)
        level = None if front is None else front.level
        watched = front is not None and exchange.target in front.uris
        if front is not None:
            local = _note_wishes(exchange, front, link, passing)
            if local is not None:
                return local
        turn = None
        shared = front is not None and method in ASKING and not link.correlates_calls
        if front is not None and shared and can_be_asked(exchange.caller.capabilities):
            turn = await self._take_turn(link, front)
        try:
            timeout = self._settings.call_timeout
            result = await link.pass_on(call, passing, timeout=timeout, turn=turn)
        except BaseException:  # the server did not accept it, so the session does not have it
            if method == "resources/subscribe" and front is not None and not watched:
                stop_watching(exchange.target, front, link)
            elif method == "logging/setLevel" and front is not None:
                front.level = level
            raise
        assert link.agreement is not None
        revision = exchange.caller.revision
        if link.agreement.revision > revision:
            return downgrade_result(method, result, revision)
        return result

    async def _take_turn(self, link: Link, front: Front) -> Turn:
        """One client at a time, because a question of the server does not say whom it is for.

        A client that is being asked may have to call something first, so it need not wait.
        """
        timeout = self._settings.turn_timeout
        try:
            return await link.turns.take(front, timeout, urgent=front.asked > 0)
        except TimeoutError:
            raise own_error(
                INTERNAL_ERROR, f"{link.name} is busy: other clients use it. Try again later"
            ) from None


def stop_watching(uri: str | None, front: Front, link: Link) -> bool:
    """Remove a client from those that watch a resource; return True if others still do."""
    if uri is None:
        return False
    front.uris.discard(uri)
    watching = link.uris.get(uri, set())
    watching.discard(front)
    if not watching:
        link.uris.pop(uri, None)
    return bool(watching)


def _note_wishes(exchange: Exchange, front: Front, link: Link, passing: RelayedParams) -> Answer:
    """Remember the level and subscriptions of a session; return a result if that is all.

    Before the server has answered, because what it sends next may be for the session already.
    """
    match exchange.method:
        case "logging/setLevel":
            level = string_of((passing.members or {}).get("level"))
            if level not in LEVELS:
                return None  # for the server to refuse
            front.level = level
            others = [f.level for f in link.fronts if f is not front and f.level is not None]
            if others:
                passing.replace("level", min((level, *others), key=LEVELS.index))
        case "resources/subscribe" if exchange.target is not None:
            front.uris.add(exchange.target)
            link.uris.setdefault(exchange.target, set()).add(front)
        case "resources/unsubscribe" if exchange.target is not None:
            if link.borrowed and exchange.target not in front.uris:
                return b"{}"  # the gateway itself may watch it here, for other clients
            if stop_watching(exchange.target, front, link):
                return b"{}"  # another client still watches it
    return None


def _uri_count(exchange: Exchange) -> int:
    """Return how many resources a listen stream is about; the server refuses a bad request."""
    try:
        return len(uris_of(exchange))
    except RpcError:
        return 0


def _with_our_versions(discovered: Raw) -> Raw:
    """Return the result of `server/discover` with the revisions that we speak to clients."""
    members = members_of(discovered)
    if members is None:
        return discovered
    spoken = [revision.value for revision in reversed(Revision)]
    return encoded({**members, "supportedVersions": spoken})


def _tagged(result: Raw, exchange: Exchange) -> Raw:
    """Return the last result of a subscription with the id of the client's request."""
    members = members_of(result)
    meta = None if members is None else members_of(members.get("_meta", Raw(b"{}")))
    if members is None or meta is None:
        return result
    meta[SUBSCRIPTION_KEY] = encoded(exchange.request_id)
    return encoded({**members, "_meta": meta})
