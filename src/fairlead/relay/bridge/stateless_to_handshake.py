"""Bridge from stateless clients to a server of the handshake era."""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from ...errors import RpcError
from ...interceptor import Answer, Exchange
from ...peer.intercepted_peer import InterceptedNotifier
from ...protocol.caller import ROUND_MEMBERS, can_be_asked, has_capability
from ...protocol.downgrade.downgrade_error import DowngradeError
from ...protocol.downgrade.results import downgrade_result, upgrade_result
from ...protocol.json_edit import RawMembers, encoded, members_of, string_of
from ...protocol.own_errors import own_error
from ...protocol.revisions import NEWEST, Revision
from ...server.features.change_broadcaster import ChangeBroadcaster
from ...server.features.subscription_quota import SubscriptionQuota
from ...upstream.connection.caller_subscriptions import CallerSubscription
from ...upstream.connection.relayed_call import (
    ASKING,
    LEVELS,
    STATELESS_KEYS,
    RelayedCall,
    RelayedParams,
    params_of,
)
from ...upstream.connection.upstream_connection import (
    begin_subscription,
    declared_by,
    end_subscription,
)
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND, URL_ELICITATION_REQUIRED
from ..request_params import listen_request_for, uris_of
from .era_errors import for_stateless_client
from .parked_calls import ParkedCalls

if TYPE_CHECKING:
    from ...upstream.connection.connection_pool import UpstreamPool
    from ...upstream.connection.upstream_connection import Turn, UpstreamConnection
    from ..client_session import ClientSession

__all__ = ["StatelessToHandshake"]

log = logging.getLogger("fairlead.gateway")

# Methods that exist only in sessions.
_GONE: Final = frozenset(
    {
        *("initialize", "ping", "logging/setLevel"),
        *("resources/subscribe", "resources/unsubscribe"),
        *("tasks/list", "tasks/result"),
    }
)


# Methods that the relay answers or refuses itself.
_OURS: Final = _GONE | {"server/discover", "subscriptions/listen"}


class StatelessToHandshake:
    """Bridge that forwards requests of stateless clients to a server of the handshake era."""

    def __init__(
        self,
        pool: "UpstreamPool",
        parked: ParkedCalls,
        quota: SubscriptionQuota,
    ) -> None:
        self._pool = pool
        self._quota = quota
        self._parked = parked

    async def answer(
        self, exchange: Exchange, session: "ClientSession | None", connection: "UpstreamConnection"
    ) -> Answer:
        """Handle a request; `connection` is the connection for this caller.

        Raises:
            RpcError: The server or the relay refused the request.
            FairleadError: The server cannot be reached.
        """
        method = exchange.method
        if method == "server/discover":
            return _discovered(connection)
        if method == "subscriptions/listen":
            return await self._listen(exchange, connection)
        if method in _GONE:
            raise own_error(METHOD_NOT_FOUND, f"Method not found: {method}")
        passing = params_of(exchange)
        passing.without(STATELESS_KEYS)
        try:
            if method in ASKING and passing.members is not None:
                result = await self._ask_back(exchange, session, connection, passing)
            else:
                call = RelayedCall(exchange, session)
                result = await self._pass_on(connection, call, passing)
        except RpcError as exc:
            if exc.code == URL_ELICITATION_REQUIRED:
                return self._visits(exchange, passing, exc)
            raise for_stateless_client(exc) from None
        return _complete(method, result, connection)

    def plain(self, exchange: Exchange) -> "tuple[UpstreamConnection, RelayedParams] | None":
        """Return the connection and params for a request that can be forwarded directly, or None.

        A request can be forwarded directly if the server cannot request input during it, and if it
        does not continue an earlier round. Nearly all requests qualify.
        """
        method, caller = exchange.message.method, exchange.caller
        # A request with a log level is not forwarded directly, because the level must be set first.
        if method in _OURS or caller.log_level is not None or can_be_asked(caller.capabilities):
            return None
        connection = self._pool.handshake_connection(caller)
        if connection is None:
            return None
        passing = params_of(exchange)
        members = passing.members
        if members is None or members.keys() & ROUND_MEMBERS:
            return None
        passing.without(STATELESS_KEYS)
        return connection, passing

    def plain_outcome(
        self, method: str, connection: "UpstreamConnection", outcome: Raw | Exception
    ) -> Raw | Exception:
        """Convert the outcome of a request that was forwarded directly."""
        if isinstance(outcome, RpcError):
            return for_stateless_client(outcome)
        if isinstance(outcome, Exception):
            return outcome
        try:
            return _complete(method, outcome, connection)
        except DowngradeError as exc:
            return own_error(METHOD_NOT_FOUND, str(exc))

    async def _pass_on(
        self,
        connection: "UpstreamConnection",
        call: RelayedCall,
        passing: RelayedParams,
        turn: "Turn | None" = None,
    ) -> Raw:
        level = call.exchange.caller.log_level
        if level is not None:
            connection.preparing += 1
            try:
                await _set_level(connection, level)
            finally:
                connection.preparing -= 1
        return await connection.pass_on(
            call, passing, timeout=self._pool.settings.call_timeout, turn=turn
        )

    # Input requests during a call

    async def _ask_back(
        self,
        exchange: Exchange,
        session: "ClientSession | None",
        connection: "UpstreamConnection",
        passing: RelayedParams,
    ) -> Raw:
        assert passing.members is not None
        members = passing.members
        given = members.pop("requestState", None)
        if given is not None:
            state = string_of(given)
            if state is None:
                raise own_error(
                    INVALID_PARAMS, "requestState must be a string, as returned by the server"
                )
            result = await self._parked.resume(exchange, members, state)
            if result is not None:
                return result
        # A retry without a parked call is forwarded like a new request.
        members.pop("inputResponses", None)
        call = RelayedCall(exchange, session)
        if not can_be_asked(exchange.caller.capabilities):
            return await self._pass_on(connection, call, passing)
        try:
            connection, turn = await self._pool.for_asking(exchange.caller)
        except TimeoutError:
            raise own_error(
                -32603,
                f"{connection.name} is busy: calls that may request input occupy all "
                "connections. Try again later",
            ) from None
        # A task, because the call outlives the client's request while it is parked.
        work = asyncio.ensure_future(self._pass_on(connection, call, passing, turn))
        if turn is not None:
            # Releases the turn even if the task is cancelled before its first step.
            work.add_done_callback(lambda _: turn.release())
        return await self._parked.begin(call, members, work, self._pool.settings)

    def _visits(self, exchange: Exchange, passing: RelayedParams, refusal: RpcError) -> Raw:
        """Convert the error -32042 into a result that requests visits to the listed pages."""
        try:
            data = msgspec.json.decode(refusal.raw or b"{}", type=_Refusal).data
        except (msgspec.DecodeError, RecursionError):
            raise for_stateless_client(refusal) from None
        questions: dict[str, Any] = {}
        for index, one in enumerate(data.elicitations):
            members = members_of(one) or {}
            # The stateless era has no visit ids.
            members.pop("elicitationId", None)
            members.setdefault("mode", Raw(b'"url"'))
            questions[f"u{index + 1}"] = {"method": "elicitation/create", "params": members}
        if not questions or not has_capability(exchange.caller.declared, "elicitation.url"):
            raise for_stateless_client(refusal) from None
        state = self._parked.retry_state(
            exchange, passing.members, self._pool.settings.park_timeout
        )
        return encoded(
            {
                "resultType": "input_required",
                "inputRequests": questions,
                "requestState": state,
            }
        )

    # Changes

    async def _listen(self, exchange: Exchange, connection: "UpstreamConnection") -> Answer:
        changes = connection.changes
        if changes is None:
            notifier = InterceptedNotifier(connection.interceptors, connection.server_info)
            changes = ChangeBroadcaster(notifier if connection.interceptors else None, self._quota)
            connection.changes = changes
        declared = declared_by(connection)
        # Each listen stream is a separate subscriber, compared by identity.
        mine = object()
        uris = uris_of(exchange) if has_capability(declared, "resources.subscribe") else []
        with changes.admitted(exchange, len(uris)):
            connection.stream_count += 1
            try:
                told = await asyncio.gather(
                    *(begin_subscription(connection, uri, mine) for uri in uris)
                )
                granted = [uri for uri, accepted in zip(uris, told, strict=True) if accepted]
                if len(granted) < len(uris):
                    exchange = listen_request_for(exchange, granted)
                changed = partial(changes.changed_for, (exchange.edge,))
                own = CallerSubscription(exchange.caller, granted, changed, besides=connection)
                with self._pool.callers.following(own):
                    return await changes.listen_admitted(exchange, declared)
            finally:
                connection.stream_count -= 1
                for uri in uris:
                    end_subscription(connection, uri, mine)


class _Refused(Struct):
    elicitations: list[Raw] = []


class _Refusal(Struct):
    data: _Refused = msgspec.field(default_factory=_Refused)


async def _set_level(connection: "UpstreamConnection", level: str) -> None:
    """Lower the log level of the server if a client needs a lower level.

    A server has one level per connection: the lowest level that any client has requested.
    """
    if level not in LEVELS or not has_capability(declared_by(connection), "logging"):
        return
    if connection.level is None or LEVELS.index(level) < LEVELS.index(connection.level):
        connection.level = level
        try:
            await connection.peer.request("logging/setLevel", {"level": level})
        except RpcError as exc:  # the call continues without log messages
            log.debug("%s: logging/setLevel was refused: %s", connection.name, exc)


def _discovered(connection: "UpstreamConnection") -> Raw:
    agreement = connection.agreement
    assert agreement is not None
    capabilities: RawMembers = members_of(agreement.capabilities) or {}
    # Tasks differ between the eras and are not bridged.
    capabilities.pop("tasks", None)
    result: dict[str, Any] = {
        "supportedVersions": [revision.value for revision in reversed(Revision)],
        "capabilities": capabilities,
    }
    if agreement.instructions is not None:
        result["instructions"] = agreement.instructions
    return _complete("server/discover", Raw(to_json(result)), connection)


def _complete(method: str, result: Raw, connection: "UpstreamConnection") -> Raw:
    """Return a result with the members that a stateless client expects."""
    shown = downgrade_result(method, result, NEWEST)
    return upgrade_result(method, shown, server_info=connection.server_info)
