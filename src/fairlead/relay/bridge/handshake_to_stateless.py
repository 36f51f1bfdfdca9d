"""Clients of the handshake era in front of a stateless server."""

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from ...client.connection.listen_request import ACKNOWLEDGED, CANCELLED, ListenRequest
from ...errors import RpcError
from ...interceptor import Answer, Exchange
from ...protocol.caller import CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY, VERSION_KEY
from ...protocol.downgrade.capabilities import downgrade_capabilities
from ...protocol.downgrade.results import downgrade_result
from ...protocol.identity.client_capabilities import for_stateless_server
from ...protocol.json_edit import RawMembers, encoded, members_of, string_of
from ...protocol.methods import has_capability
from ...protocol.own_errors import own_error
from ...protocol.revisions import NEWEST
from ...upstream.connection.relayed_call import LEVELS, RelayedCall
from ...upstream.connection.relayed_params import RelayedParams, params_of, with_subscription_id
from ...wire import Notification, to_json
from ...wire.error_codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from .bridged_input_rounds import BridgedInputRounds, kind_of
from .era_errors import for_handshake_client

if TYPE_CHECKING:
    from ...upstream.connection.server_events import EventReceiver
    from ...upstream.connection.upstream_connection import UpstreamConnection
    from ..client_session import ClientSession

__all__ = ["HandshakeToStateless"]

log = logging.getLogger("fairlead.gateway")

# An empty cursor is a cursor in the stateless era. Many clients of the handshake era take it for
# the end of the list, so they get another one for it.
_EMPTY: Final = Raw(b'""')
_OUR_CURSOR: Final = Raw(b'"fairlead:empty-cursor"')
LISTS: Final = ("tools", "prompts", "resources")
ACKNOWLEDGED_IN: Final = 10.0  # seconds; who has not said by then that it will tell may do so still


class HandshakeToStateless:
    """Everybody with a handshake on one connection to a stateless server.

    One long request hears of all changes that the server tells of, for all of them.
    """

    def __init__(
        self, connection: "UpstreamConnection", call_timeout: float, default_level: str = "off"
    ) -> None:
        """`default_level` is what the server logs for sessions that have set no level."""
        self._connection = connection
        logs = default_level != "off" and _can(connection, "logging")
        self._default_level = default_level if logs else None
        self._call_timeout = call_timeout
        self._listening = ListenRequest(missed=self._missed)
        self._heard = False  # it was asked to tell
        self._granted: set[str] | None = None  # the resources that it tells of, if it said so
        connection.on_news = self._news

    # What it says about itself

    def initialized(self, exchange: Exchange) -> bytes:
        """The answer to `initialize`, from what the server said when it was discovered."""
        agreement, revision = self._connection.agreement, exchange.caller.revision
        assert agreement is not None
        info = agreement.server_info or to_json({"name": self._connection.name, "version": "0"})
        result: dict[str, Any] = {
            "protocolVersion": revision.value,
            "capabilities": downgrade_capabilities(Raw(agreement.capabilities), revision),
            "serverInfo": Raw(info),
        }
        if agreement.instructions is not None:
            result["instructions"] = agreement.instructions
        return bytes(downgrade_result("initialize", Raw(to_json(result)), revision))

    # What clients ask

    async def answer(self, exchange: Exchange, session: "ClientSession | None") -> Answer:
        """Answer a request of a client.

        Raises:
            RpcError: to refuse.
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
        call = RelayedCall(exchange, session, rising=True)
        stamp = self._stamp(exchange, session)

        async def ask(added: RawMembers) -> Raw:
            passing = params_of(exchange)
            if passing.members is not None:
                passing.members.pop("task", None)  # tasks are another thing in the other era
                if passing.members.get("cursor") == _OUR_CURSOR:
                    passing.members["cursor"] = _EMPTY
                passing.members.update(added)
            passing.stamp(stamp)
            return await self._connection.pass_on(call, passing, timeout=self._call_timeout)

        try:
            result = await ask({})
            kind = kind_of(result)
            if kind == "input_required":
                result = await BridgedInputRounds(call, self._connection).finish(result, ask)
            elif kind != "complete":
                raise own_error(
                    INTERNAL_ERROR, f"The server's result is of an unknown type: {kind}"
                )
        except RpcError as exc:
            raise for_handshake_client(exchange.method, exc) from None
        if call.outbox is not None and not call.outbox.empty:
            await call.outbox.flushed()
        return _with_visible_cursor(
            downgrade_result(exchange.method, result, exchange.caller.revision)
        )

    def _stamp(self, exchange: Exchange, session: "ClientSession | None") -> RawMembers:
        """What a stateless server wants to know with each request."""
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

    def _set_level(self, exchange: Exchange, session: "ClientSession | None") -> bytes:
        level = (RelayedParams(exchange.message.params).members or {}).get("level")
        named = next((known for known in LEVELS if level == encoded(known)), None)
        if named is None:
            raise own_error(
                INVALID_PARAMS, f"There is no such log level; there are {', '.join(LEVELS)}"
            )
        if session is not None:
            session.level = named
        return b"{}"

    # What they want to hear

    async def joined(self) -> None:
        """A session is open: hear of the lists that the server says it tells of."""
        lists = {name for name in LISTS if self._can(f"{name}.listChanged")}
        if lists - self._listening.lists or (not self._heard and lists):
            self._listening.set_lists(lists)  # type: ignore[arg-type]
            await self._listen()

    async def _subscribe(self, exchange: Exchange, session: "ClientSession | None") -> bytes:
        uri = exchange.target
        if uri is None:
            raise own_error(INVALID_PARAMS, "params.uri is required: the URI of a resource")
        if not self._can("resources.subscribe"):
            raise own_error(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
        if session is None:
            return b"{}"  # a message that stands alone: there is nobody to tell
        if exchange.method == "resources/subscribe":
            session.uris.add(uri)
        else:
            session.uris.discard(uri)
        followed = await self.follow()
        if followed and (uri not in session.uris or self._granted is None or uri in self._granted):
            return b"{}"
        session.uris.discard(uri)
        raise own_error(INTERNAL_ERROR, f"The server does not tell of changes of {uri}")

    async def follow(self) -> bool:
        """Have the server tell of what the sessions watch now, and of nothing else."""
        wanted = {
            uri: None for session in self._connection.sessions for uri in sorted(session.uris)
        }
        if wanted == self._listening.uris and (self._heard or not wanted):
            return True
        before = dict(self._listening.uris)
        self._listening.set_uris(wanted)
        if await self._listen():
            return True
        self._listening.set_uris(before)
        return False

    async def _listen(self) -> bool:
        self._heard = True  # at once: who comes meanwhile need not ask the same again
        try:
            await self._listening.listen(self._connection.peer, ACKNOWLEDGED_IN)
        except RpcError as exc:
            log.warning("%s: it does not tell of changes: %s", self._connection.name, exc)
            self._heard = False
            return False
        except BaseException:
            self._heard = False
            raise
        return True

    def _can(self, capability: str) -> bool:
        return _can(self._connection, capability)

    def _news(self, note: Notification) -> None:
        """The server told of a change."""
        if note.method in (ACKNOWLEDGED, CANCELLED):
            params = b"{}" if not isinstance(note.params, Raw) else note.params
            if note.method == ACKNOWLEDGED:
                self._granted = _granted(params)
            self._listening.heard(note.method, msgspec.json.decode(params))
            return
        plain = with_subscription_id(note, None)
        if note.method == "notifications/resources/updated":
            members = members_of(note.params) if isinstance(note.params, Raw) else None
            uri = string_of((members or {}).get("uri"))
            for session in list(self._connection.sessions):
                if uri in session.uris:
                    session.tell(plain)
            return
        for session in list(self._connection.sessions):
            session.tell(plain)

    def _missed(self) -> None:
        """Nobody told of changes for a while: clients look again."""
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
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if honoured is None else set(honoured.resource_subscriptions)


def possibly_missed_changes(
    connection: "UpstreamConnection", session: "EventReceiver"
) -> list[Notification]:
    """What a client hears when nobody told of changes for a while: all of it may have changed."""
    lists = [name for name in LISTS if _can(connection, f"{name}.listChanged")]
    notes = [Notification(f"notifications/{name}/list_changed") for name in lists]
    for uri in sorted(session.uris):
        notes.append(Notification("notifications/resources/updated", encoded({"uri": uri})))
    return notes


def _can(connection: "UpstreamConnection", capability: str) -> bool:
    declared = (
        {}
        if connection.agreement is None
        else msgspec.json.decode(connection.agreement.capabilities)
    )
    return has_capability(declared, capability)


def _with_visible_cursor(result: Raw) -> Raw:
    """Return a page of a list with a cursor of ours in place of an empty one."""
    if b'"nextCursor"' not in bytes(result):
        return result
    members = members_of(result)
    if members is None or members.get("nextCursor") != _EMPTY:
        return result
    members["nextCursor"] = _OUR_CURSOR
    return encoded(members)
