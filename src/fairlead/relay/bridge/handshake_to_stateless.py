"""Bridge from clients of the handshake era to a stateless server."""

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from ...client.connection.listen_request import ACKNOWLEDGED, CANCELLED, ListenRequest
from ...errors import RpcError
from ...interceptor import Answer, Exchange
from ...protocol.caller import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    VERSION_KEY,
    has_capability,
)
from ...protocol.downgrade.capabilities import downgrade_capabilities
from ...protocol.downgrade.results import downgrade_result
from ...protocol.identity.client_capabilities import for_stateless_server
from ...protocol.json_edit import RawMembers, encoded, members_of, string_of
from ...protocol.own_errors import own_error
from ...protocol.revisions import NEWEST
from ...upstream.connection.relayed_call import (
    LEVELS,
    RelayedCall,
    RelayedParams,
    params_of,
    with_subscription_id,
)
from ...upstream.connection.upstream_connection import declared_by
from ...wire import Notification, to_json
from ...wire.error_codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from .bridged_input_rounds import BridgedInputRounds, requests_input
from .era_errors import for_handshake_client

if TYPE_CHECKING:
    from ...upstream.connection.server_events import EventReceiver
    from ...upstream.connection.upstream_connection import UpstreamConnection
    from ..client_session import ClientSession

__all__ = ["HandshakeToStateless"]

log = logging.getLogger("fairlead.gateway")

# An empty cursor is valid in the stateless era. Many clients of the handshake era take it for
# the end of the list, so the relay sends them another value.
_EMPTY: Final = Raw(b'""')
_OUR_CURSOR: Final = Raw(b'"fairlead:empty-cursor"')
LISTS: Final = ("tools", "prompts", "resources")
# Seconds to wait for the acknowledgement of a subscription.
# A server that sends no acknowledgement may still send notifications.
ACKNOWLEDGED_IN: Final = 10.0


class HandshakeToStateless:
    """Bridge for all sessions of the handshake era that share a connection to a stateless server.

    One `subscriptions/listen` request covers the changes for all of these sessions.
    """

    def __init__(self, connection: "UpstreamConnection") -> None:
        self._connection = connection
        self._logs = _can(connection, "logging")
        self._listening = ListenRequest(missed=self._missed)
        self._heard = False  # `subscriptions/listen` has been sent
        # the subscriptions to resources that the server acknowledged; None: unknown
        self._granted: set[str] | None = None
        connection.on_news = self._news

    # Handshake

    def initialized(self, exchange: Exchange) -> bytes:
        """Build the result of `initialize` from the result of `server/discover`."""
        agreement, revision = self._connection.agreement, exchange.caller.revision
        assert agreement is not None
        # `serverInfo` is required in the handshake era and optional in the stateless era.
        info = agreement.server_info or to_json({"name": self._connection.name, "version": "0"})
        result: dict[str, Any] = {
            "protocolVersion": revision.value,
            "capabilities": downgrade_capabilities(Raw(agreement.capabilities), revision),
            "serverInfo": Raw(info),
        }
        if agreement.instructions is not None:
            result["instructions"] = agreement.instructions
        return bytes(downgrade_result("initialize", Raw(to_json(result)), revision))

    # Requests of clients

    async def answer(self, exchange: Exchange, session: "ClientSession | None") -> Answer:
        """Handle a request of a client.

        Raises:
            RpcError: The server or the relay refused the request.
        """
        match exchange.method:
            case "ping":
                return b"{}"
            case "logging/setLevel":
                return self._set_level(exchange, session)
            case "resources/subscribe" | "resources/unsubscribe":
                return await self._subscribe(exchange, session)
        return await self._pass_on(exchange, session)

    async def _pass_on(self, exchange: Exchange, session: "ClientSession | None") -> Answer:
        # `rising`: the server may restart its progress at zero in each round,
        # but the client's request must report increasing progress.
        call = RelayedCall(exchange, session, rising=True)
        stamp = self._stamp(exchange, session)

        async def ask(added: RawMembers) -> Raw:
            passing = params_of(exchange)
            if passing.members is not None:
                # Tasks differ between the eras and are not bridged.
                passing.members.pop("task", None)
                if passing.members.get("cursor") == _OUR_CURSOR:
                    passing.members["cursor"] = _EMPTY
                passing.members.update(added)
            passing.stamp(stamp)
            limit = self._connection.settings().call_timeout
            return await self._connection.pass_on(call, passing, timeout=limit)

        try:
            result = await ask({})
            if requests_input(result):
                result = await BridgedInputRounds(call, self._connection).finish(result, ask)
        except RpcError as exc:
            raise for_handshake_client(exchange.method, exc) from None
        await call.flushed()  # all notifications of the call must be sent before its result
        return _with_visible_cursor(
            downgrade_result(exchange.method, result, exchange.caller.revision)
        )

    def _stamp(self, exchange: Exchange, session: "ClientSession | None") -> RawMembers:
        """Return the members of `_meta` that a stateless server expects in each request."""
        caller = exchange.caller
        stamp = {
            VERSION_KEY: encoded(NEWEST.value),
            CAPABILITIES_KEY: Raw(for_stateless_server(caller.capabilities)),
        }
        if caller.info is not None:
            stamp[CLIENT_INFO_KEY] = Raw(caller.info)
        level = None if session is None else session.level or self._default_level
        if level is not None:
            stamp[LOG_LEVEL_KEY] = encoded(level)
        return stamp

    @property
    def _default_level(self) -> str | None:
        """The log level for sessions that have not set one."""
        level = self._connection.settings().log_level
        return level if self._logs and level != "off" else None

    def _set_level(self, exchange: Exchange, session: "ClientSession | None") -> bytes:
        level = (RelayedParams(exchange.message.params).members or {}).get("level")
        named = next((known for known in LEVELS if level == encoded(known)), None)
        if named is None:
            raise own_error(
                INVALID_PARAMS,
                f"Unknown log level {string_of(level)!r}: expected one of {', '.join(LEVELS)}",
            )
        if session is not None:
            session.level = named
        return b"{}"

    # Subscriptions

    async def joined(self) -> None:
        """Subscribe to list changes when the first session joins."""
        lists = {name for name in LISTS if _can(self._connection, f"{name}.listChanged")}
        if lists - self._listening.lists or (not self._heard and lists):
            self._listening.set_lists(lists)  # type: ignore[arg-type]
            await self._listen()

    async def _subscribe(self, exchange: Exchange, session: "ClientSession | None") -> bytes:
        uri = exchange.target
        if uri is None:
            raise own_error(INVALID_PARAMS, "params.uri is required: the URI of a resource")
        if not _can(self._connection, "resources.subscribe"):
            raise own_error(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
        if session is None:
            return b"{}"  # without a session, the client has no stream for notifications
        # `follow` reads `session.uris` of all sessions, so change it first.
        if exchange.method == "resources/subscribe":
            session.uris.add(uri)
        else:
            session.uris.discard(uri)
        followed = await self.follow()
        if followed and (uri not in session.uris or self._granted is None or uri in self._granted):
            return b"{}"
        session.uris.discard(uri)
        raise own_error(INTERNAL_ERROR, f"The server refused the subscription to {uri}")

    async def follow(self) -> bool:
        """Subscribe to the resources of the current sessions.

        Return False if the server refuses.
        """
        wanted = {
            uri: None for session in self._connection.sessions for uri in sorted(session.uris)
        }
        if wanted == self._listening.uris and (self._heard or not wanted):
            return True
        before = dict(self._listening.uris)
        self._listening.set_uris(wanted)
        if await self._listen():
            return True
        # The server still has the earlier subscriptions, so they are recorded again.
        self._listening.set_uris(before)
        return False

    async def _listen(self) -> bool:
        # Set before the request, so that concurrent sessions do not send a second request.
        self._heard = True
        try:
            await self._listening.listen(self._connection.peer, ACKNOWLEDGED_IN)
        except RpcError as exc:
            log.warning("%s: subscriptions/listen was refused: %s", self._connection.name, exc)
            self._heard = False
            return False
        # `BaseException`, because a cancelled request has not subscribed either.
        except BaseException:
            self._heard = False
            raise
        return True

    def _news(self, note: Notification) -> None:
        """Forward a notification of a change to the sessions that it concerns."""
        if note.method in (ACKNOWLEDGED, CANCELLED):
            params = b"{}" if not isinstance(note.params, Raw) else note.params
            if note.method == ACKNOWLEDGED:
                self._granted = _granted(params)
            self._listening.heard(note.method, msgspec.json.decode(params))
            return
        # The subscription id belongs to the relay's request; the handshake era has no such id.
        plain = with_subscription_id(note, None)
        updated = note.method == "notifications/resources/updated"
        members = members_of(note.params) if updated and isinstance(note.params, Raw) else None
        uri = string_of((members or {}).get("uri"))
        for session in list(self._connection.sessions):
            if not updated or uri in session.uris:
                session.tell(plain)

    def _missed(self) -> None:
        """Notify all sessions that changes may have been missed."""
        for session in list(self._connection.sessions):
            for note in possibly_missed_changes(self._connection, session):
                session.tell(note)

    async def close(self) -> None:
        await self._listening.close()


class _Honoured(Struct, rename="camel"):
    resource_subscriptions: list[str] = []


class _Acknowledged(Struct):
    notifications: _Honoured | None = None


def _granted(params: Raw | bytes) -> set[str] | None:
    try:
        honoured = msgspec.json.decode(params, type=_Acknowledged).notifications
    # The acknowledgement cannot be read, so the acknowledged resources are unknown.
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if honoured is None else set(honoured.resource_subscriptions)


def possibly_missed_changes(
    connection: "UpstreamConnection", session: "EventReceiver"
) -> list[Notification]:
    """Return notifications for all lists and resources whose changes may have been missed."""
    lists = [name for name in LISTS if _can(connection, f"{name}.listChanged")]
    notes = [Notification(f"notifications/{name}/list_changed") for name in lists]
    for uri in sorted(session.uris):
        notes.append(Notification("notifications/resources/updated", encoded({"uri": uri})))
    return notes


def _can(connection: "UpstreamConnection", capability: str) -> bool:
    return has_capability(declared_by(connection), capability)


def _with_visible_cursor(result: Raw) -> Raw:
    """Return a page of a list with an empty cursor replaced by a non-empty one."""
    # Most results have no cursor, and searching the bytes is cheaper than decoding.
    if b'"nextCursor"' not in bytes(result):
        return result
    members = members_of(result)
    if members is None or members.get("nextCursor") != _EMPTY:
        return result
    members["nextCursor"] = _OUR_CURSOR
    return encoded(members)
