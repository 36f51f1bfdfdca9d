"""Functions that read and change the params of requests."""

from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, UnsetType

from ..interceptor import Exchange
from ..limits import SESSION_SUBSCRIPTIONS
from ..protocol.caller import read_params_head
from ..protocol.json_edit import members_of
from ..protocol.own_errors import own_error
from ..protocol.targets.targets import NESTED_NAMES
from ..server.decode_params import decode_params
from ..wire import to_json
from ..wire.error_codes import INVALID_PARAMS

__all__ = [
    "cursor_of",
    "level_of",
    "listen_request_for",
    "reference_of",
    "uris_of",
    "wants_all",
    "with_members",
]

MAX_URIS = SESSION_SUBSCRIPTIONS.value  # maximum number of resources in one subscription
# The member of `_meta` with which `tools/list` returns all tools instead of the search tools.
ALL_TOOLS = "fairlead/allTools"

S = TypeVar("S", bound=Struct)


class CompletionReference(Struct):
    """The prompt or resource template whose argument is completed."""

    name: str | None = None
    uri: str | None = None
    raw: Raw = Raw(b"{}")


class _Cursor(Struct):
    cursor: str | None = None


class _Level(Struct):
    level: str = ""


class _Completing(Struct):
    ref: Raw = Raw(b"{}")


class _Filter(Struct, rename="camel"):
    resource_subscriptions: list[str] = []


class _Listening(Struct):
    notifications: _Filter = msgspec.field(default_factory=_Filter)


class _Switches(Struct):
    all_tools: bool = msgspec.field(default=False, name=ALL_TOOLS)


class _Switched(Struct):
    meta: _Switches = msgspec.field(default_factory=_Switches, name="_meta")


def cursor_of(exchange: Exchange) -> str | None:
    """Return the cursor of a request for a list."""
    return _read(exchange.message.params, _Cursor).cursor


def wants_all(exchange: Exchange) -> bool:
    """Return True if a `tools/list` request asks for all tools instead of the search tools."""
    params = exchange.message.params
    # Nearly all requests lack this member, and searching the bytes is cheaper than decoding.
    if isinstance(params, UnsetType) or ALL_TOOLS.encode() not in bytes(params):
        return False
    return _read(params, _Switched).meta.all_tools


def level_of(exchange: Exchange) -> str:
    """Return the log level that a request sets."""
    return _read(exchange.message.params, _Level).level


def reference_of(exchange: Exchange) -> CompletionReference:
    """Return the prompt or resource template of a completion request.

    Raises:
        RpcError: -32602, the params are invalid. A reference with a name and a URI, or with a
            member such as `Name`, is refused, because the server could use the member that was not
            checked.
    """
    raw = _read(exchange.message.params, _Completing).ref
    reference = _read(raw, CompletionReference)
    respelled = any(map(NESTED_NAMES.respells, members_of(raw) or ()))
    if respelled or (reference.name is not None and reference.uri is not None):
        raise own_error(INVALID_PARAMS, "params.ref must have either a name or a URI")
    reference.raw = raw
    return reference


def uris_of(exchange: Exchange) -> list[str]:
    """Return the first `MAX_URIS` resources that a `subscriptions/listen` request names, without
    duplicates.
    """
    wanted = _read(exchange.message.params, _Listening).notifications.resource_subscriptions
    return list(dict.fromkeys(wanted))[:MAX_URIS]


def with_members(exchange: Exchange, **members: Any) -> Exchange:
    """Return a copy of an exchange with changed params; other members keep their bytes."""
    message, params = exchange.message, exchange.message.params
    old = {} if isinstance(params, UnsetType) else msgspec.json.decode(params, type=dict[str, Raw])
    new = Raw(to_json({**old, **members}))
    changed = msgspec.structs.replace(
        exchange,
        message=msgspec.structs.replace(message, params=new),
        head=read_params_head(new),
    )
    if "name" in members:
        changed.alias = changed.displayed = None  # both are names of the previous target
    return changed


def listen_request_for(exchange: Exchange, uris: list[str]) -> Exchange:
    """Return a copy of a `subscriptions/listen` request for these resources only."""
    params = exchange.message.params
    if isinstance(params, UnsetType):
        return exchange
    wanted = msgspec.json.decode(params).get("notifications")
    if not isinstance(wanted, dict) or "resourceSubscriptions" not in wanted:
        return exchange
    return with_members(exchange, notifications={**wanted, "resourceSubscriptions": uris})


def _read(params: Raw | UnsetType, kind: type[S]) -> S:
    """Decode params.

    Raises:
        RpcError: The params are invalid (-32602).
    """
    return decode_params(params, kind, own_error)
