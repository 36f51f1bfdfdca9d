"""Params of forwarded requests: rebuilt key by key, with the original bytes of every value.

`_meta` contains the progress token and other members that belong to one hop, so it is never
forwarded unchanged. The other members are sent exactly as they were read for routing.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ...errors import RpcError
from ...interceptor import Exchange
from ...protocol.caller import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    SUBSCRIPTION_KEY,
    VERSION_KEY,
)
from ...protocol.json_edit import RawMembers, members_of
from ...wire import Notification, Params, RequestId, to_json
from ...wire.error_codes import INVALID_PARAMS

__all__ = [
    "STATELESS_KEYS",
    "UNREADABLE",
    "RelayedParams",
    "params_as_decoded",
    "params_of",
    "with_progress_token",
    "with_subscription_id",
]

TOKEN: Final = "progressToken"
UNREADABLE: Final = "Invalid params: nested too deeply to be read"
# Members with which a stateless request describes its client. A handshake server has received the
# same in `initialize`.
STATELESS_KEYS: Final = (VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY)

# The length of the shortest encoding without the name and the arguments.
_AROUND: Final = len(b'{"name":"","arguments":}')

_encode = msgspec.json.Encoder().encode
_Meta = dict[str, Raw]


class RelayedParams:
    """The params of one request that is forwarded to another connection."""

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
            RpcError: The params cannot be read; they might contain a token that is another
                request's id.
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
    """Return the params as Fairlead decoded them: a duplicate name has only one value.

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
            return params  # name and arguments fill the params, so there is no other member
    members = members_of(params)
    return Raw(_encode(members)) if members and "_meta" not in members else None


def params_of(exchange: Exchange) -> RelayedParams:
    """Return the params of a request, with the server's own name of its target."""
    params = RelayedParams(exchange.message.params)
    if exchange.alias is not None:
        params.replace("name", exchange.alias)
    return params


def with_progress_token(note: Notification, token: RequestId) -> Notification:
    """Return a progress notification under the token of the original request."""
    members = None if isinstance(note.params, UnsetType) else members_of(note.params)
    if members is None:
        return note
    members[TOKEN] = Raw(to_json(token))
    return Notification(note.method, Raw(_encode(members)), note.extra)


def with_subscription_id(note: Notification, subscription: RequestId | None) -> Notification:
    """Return a notification under the id of the client's subscription; None removes the id."""
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
