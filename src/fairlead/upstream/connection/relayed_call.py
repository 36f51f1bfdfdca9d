"""A client's request that a server is processing, and the params that are sent to the server."""

from collections.abc import Callable, Mapping
from math import inf
from typing import Final, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...errors import RpcError
from ...interceptor import Exchange
from ...protocol.caller import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    SUBSCRIPTION_KEY,
    VERSION_KEY,
    read_params_head,
)
from ...protocol.caller import LOG_LEVELS as LEVELS
from ...protocol.downgrade.params import downgrade_params
from ...protocol.json_edit import RawMembers, members_of
from ...protocol.methods import METHOD_NAMES, METHODS
from ...wire import Notification, Params, RequestId, to_json
from ...wire.error_codes import INVALID_PARAMS
from ...wire.json import MemberNames
from .notification_outbox import CallOutbox, PeerOutbox

__all__ = [
    "ASKING",
    "LEVELS",
    "STATELESS_KEYS",
    "UNREADABLE",
    "WORK",
    "CallSession",
    "RelayedCall",
    "RelayedParams",
    "may_notify",
    "params_as_decoded",
    "params_of",
    "with_progress_token",
    "with_subscription_id",
]

TOKEN: Final = "progressToken"
UNREADABLE: Final = "Invalid params: nested too deeply to be read"
# Members with which a stateless request describes its client.
# A server of the handshake era has received the same data in `initialize`.
STATELESS_KEYS: Final = (VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY)

# Params of the protocol's requests, by which they are routed and judged.
_PARAMS: Final = MemberNames(
    *("_meta", "argument", "arguments", "capabilities", "clientInfo", "context", "cursor"),
    *("inputResponses", "level", "name", "notifications", "protocolVersion", "ref", "requestState"),
    *("task", "taskId", "uri"),
)

# The length of the shortest params, without the values of `name` and `arguments`.
_AROUND: Final = len(b'{"name":"","arguments":}')

_encode = msgspec.json.Encoder().encode
_Meta = dict[str, Raw]


class RelayedParams:
    """The params of a request that is forwarded on another connection."""

    __slots__ = ("_given", "members", "meta", "tracked")

    def __init__(self, params: Params) -> None:
        self._given: Params = params
        members: RawMembers | None = {} if isinstance(params, UnsetType) else members_of(params)
        self.members = members
        meta = members.get("_meta") if members else None
        self.meta: _Meta | None = None if meta is None else members_of(meta)
        # True if the sender requested progress notifications.
        self.tracked = self.meta is not None and self.meta.pop(TOKEN, None) is not None

    def without(self, keys: tuple[str, ...]) -> None:
        """Remove members of `_meta`."""
        if self.meta is not None:
            for key in keys:
                self.meta.pop(key, None)

    def stamp(self, meta: Mapping[str, Raw]) -> None:
        """Add members to `_meta`."""
        self.meta = {**(self.meta or {}), **meta}

    def replace(self, name: str, value: str) -> None:
        """Replace the text of a member."""
        if self.members is not None:
            self.members[name] = Raw(to_json(value))

    def fill(self, request_id: RequestId) -> Params:
        """Return the params for a new request id, which is also the progress token.

        Raises:
            RpcError: The params cannot be read, so a progress token in them cannot be replaced.
        """
        members, meta = self.members, self.meta
        if members is None:
            raise RpcError(INVALID_PARAMS, UNREADABLE, {"source": "proxy"})
        if self.tracked:
            meta = dict(meta or {})
            meta[TOKEN] = Raw(
                b"%d" % request_id if type(request_id) is int else to_json(request_id)
            )
        if meta is None:
            return Raw(_encode(members)) if members else self._given
        return Raw(_encode({**members, "_meta": meta}))


def params_as_decoded(exchange: Exchange) -> Raw | None:
    """Return the params as Fairlead decoded them: each name has one value and one spelling.

    Return None if the params contain `_meta` or are not an object.
    """
    params, head = exchange.message.params, exchange.head
    if params is UNSET:
        return None
    name, arguments = head.name, head.arguments
    # The lengths are comparable only for an ASCII name, which has as many bytes as characters.
    if name is not UNSET and arguments is not UNSET and name.isascii():
        least = len(name) + len(memoryview(arguments)) + _AROUND
        if len(memoryview(params)) == least:
            return params  # the length shows that the params have no other member
    members = _as_read(members_of(params), exchange)
    return Raw(_encode(members)) if members and "_meta" not in members else None


def params_of(exchange: Exchange) -> RelayedParams:
    """Return the params of a request, with the name that the server itself uses for the target."""
    params = RelayedParams(exchange.message.params)
    if (read := _as_read(params.members, exchange)) is not params.members:
        params = RelayedParams(Raw(_encode(read)))
    if exchange.alias is not None:
        params.replace("name", exchange.alias)
    return params


def _as_read(members: RawMembers | None, exchange: Exchange) -> Mapping[str, Raw] | None:
    """Return the params without members whose names differ only in case from those that were
    checked; a server could read them instead.
    """
    if not members or exchange.message.method not in METHOD_NAMES:
        return members  # the names of other methods' params are unknown
    return _PARAMS.exact(members)


def with_progress_token(note: Notification, token: RequestId) -> Notification:
    """Return a progress notification with the token of the original request."""
    members = None if isinstance(note.params, UnsetType) else members_of(note.params)
    if members is None:
        return note
    members[TOKEN] = Raw(to_json(token))
    return Notification(note.method, Raw(_encode(members)), note.extra)


def with_subscription_id(note: Notification, subscription: RequestId | None) -> Notification:
    """Return a notification with the id of the client's subscription; None removes the id."""
    members = None if isinstance(note.params, UnsetType) else members_of(note.params)
    meta = None if members is None else members_of(members.get("_meta"))
    if members is None or meta is None or SUBSCRIPTION_KEY not in meta:
        return note
    if subscription is None:
        del meta[SUBSCRIPTION_KEY]
        if not meta:
            del members["_meta"]
            params = Raw(_encode(members)) if members else UNSET
            return Notification(note.method, params, note.extra)
    else:
        meta[SUBSCRIPTION_KEY] = Raw(to_json(subscription))
    return Notification(note.method, Raw(_encode({**members, "_meta": meta})), note.extra)


_UPDATED: Final = "notifications/resources/updated"
# Methods during which a server may send requests to the client, in both eras.
ASKING: Final = frozenset(row.name for row in METHODS if row.asks)
# Methods for which a connection is opened. Other methods use an open connection if possible.
WORK: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})


class ClientRounds(Protocol):
    """A stateless client that takes part in a call by sending further requests."""

    heard: bool  # True while a request of the client waits for the call

    async def ask(self, exchange: Exchange) -> Raw:
        """Forward a request of the server, and wait until the client sends the response in a
        request.

        Raises:
            RpcError: The client cannot answer this kind of request.
        """
        ...


class CallSession(Protocol):
    """The members of a client session that a call uses."""

    outbox: PeerOutbox

    def wants_log(self, rank: int) -> bool:
        """Return True if the session wants log messages of this severity."""

    def takes(self, note: Notification) -> bool:
        """Return True if the session accepts this notification of the server."""


class RelayedCall:
    """A request of a client, and the destination of its notifications."""

    __slots__ = ("_last", "exchange", "outbox", "parking", "rising", "sent_as", "session")

    def __init__(
        self, exchange: Exchange, session: CallSession | None, *, rising: bool = False
    ) -> None:
        """`rising` drops progress notifications whose value does not increase, as after a retry."""
        self.exchange = exchange
        self.session = session
        self.outbox: PeerOutbox | CallOutbox | None = None if session is None else session.outbox
        self.parking: ClientRounds | None = None
        self.rising = rising
        self.sent_as: RequestId | None = None  # id of the last request to the server
        self._last = -inf

    @property
    def may_be_asked(self) -> bool:
        """True if a request of the server may belong to this call."""
        return self.exchange.message.method in ASKING and (
            self.parking is not None or self.session is not None
        )

    def tell(self, note: Notification) -> None:
        """Forward a notification on the stream of this request."""
        if self.parking is not None and not self.parking.heard:
            return  # The client has no open request until it sends its responses.
        if self.outbox is None:
            self.outbox = CallOutbox(self.exchange)
        exchange = self.exchange
        if exchange.permits is not None and not may_notify(note, exchange.permits):
            return
        if not exchange.caller.stateless and not isinstance(note.params, UnsetType):
            params = downgrade_params(note.method, note.params, exchange.caller.revision)
            if params is not note.params:
                note = Notification(note.method, params, note.extra)
        self.outbox.put(note, exchange.request_id)

    def progressed(self, note: Notification) -> None:
        """Forward a progress notification under the client's own token."""
        token = self.exchange.progress_token
        if token is None:
            return
        if self.rising and not self._rises(note):
            return
        self.tell(with_progress_token(note, token))

    def wants_log(self, rank: int) -> bool:
        """Return True if the caller wants log messages of this severity."""
        if self.session is not None and not self.exchange.caller.stateless:
            return self.session.wants_log(rank)
        level = self.exchange.caller.log_level
        # An unknown level lets all messages pass.
        return level is not None and (level not in LEVELS or rank >= LEVELS.index(level))

    async def flushed(self) -> None:
        """Wait until all notifications have been sent: the response must not overtake them."""
        if self.outbox is not None and self.outbox.busy:
            await self.outbox.flushed()

    def moved_to(self, exchange: Exchange) -> None:
        """Continue the call with another request of the client."""
        self.exchange = exchange
        # Without a session, the outbox belongs to the previous request.
        if self.session is None:
            self.outbox = None

    def _rises(self, note: Notification) -> bool:
        if isinstance(note.params, UnsetType):
            return True
        try:
            progress = msgspec.json.decode(note.params, type=_Progress).progress
        except (msgspec.DecodeError, RecursionError):
            # A progress value that cannot be read is forwarded unchanged.
            return True
        if progress <= self._last:
            return False
        self._last = progress
        return True


def may_notify(note: Notification, permits: Callable[[str], bool]) -> bool:
    """Return False for a notification about a resource that `permits` rejects."""
    if note.method != _UPDATED:
        return True
    uri = read_params_head(note.params).uri
    return isinstance(uri, str) and permits(uri)


class _Progress(Struct):
    progress: float = 0.0
