"""Keys of connections: the properties of a client that a server sees.

Clients with equal keys look the same to a server and may share a connection.
"""

from typing import Any

import msgspec
from msgspec import Struct

from ...protocol.caller import (
    ANONYMOUS,
    Caller,
    Principal,
    cached_if_short,
    can_be_asked,
    principal_name,
)
from ...protocol.identity.client_capabilities import PASSED_EXTENSIONS, for_handshake_server
from ...protocol.revisions import NEWEST_HANDSHAKE, find_revision
from .upstream_connection import UpstreamConnection

__all__ = [
    "STATELESS",
    "ConnectionKey",
    "declared_capabilities",
    "describe_key",
    "key_of_caller",
    "key_of_session",
    "normal_capabilities",
]


class ConnectionKey(Struct, frozen=True, cache_hash=True):
    """The principal of a client, and the properties of the client that a server sees.

    Clients with equal keys may share a connection.
    """

    stateless: bool
    revision: str = ""  # the revision that the client proposed in `initialize`; "" if unknown
    capabilities: bytes = b"{}"  # the declared capabilities in their normal form
    principal: Principal = ANONYMOUS
    # True for a client with a session that the server can send requests to
    in_session: bool = False
    # Sessions never share a connection with stateless callers that can receive requests,
    # because a parked call of such a caller keeps its turn for minutes.
    session: int | None = None  # the number of the only session that may use the connection


# the key of the connection to a stateless server: shared by all clients, because each request
# describes its client
STATELESS = ConnectionKey(stateless=True)


@cached_if_short(1024)  # because it is called for every request
def key_of_caller(capabilities: bytes, principal: Principal) -> ConnectionKey:
    """Return the key of a stateless caller at a server of the handshake era."""
    normal = normal_capabilities(for_handshake_server(capabilities))
    return ConnectionKey(False, NEWEST_HANDSHAKE.value, normal, principal)


def key_of_session(caller: Caller, introduction: bytes) -> ConnectionKey:
    """Return the key of a session at a server of the handshake era.

    `introduction` are the params of its `initialize`.
    """
    return ConnectionKey(
        False,
        _proposed(bytes(introduction)),
        normal_capabilities(caller.capabilities),
        caller.principal,
        can_be_asked(caller.capabilities),
    )


@cached_if_short(256)
def _proposed(introduction: bytes) -> str:
    """Return the revision that a client proposed; "" if it is unknown."""
    try:
        found = msgspec.json.decode(introduction, type=_Introduction).protocol_version
    except (msgspec.DecodeError, RecursionError):
        return ""
    # Clients may propose any text, so all unknown revisions have one key.
    return "" if find_revision(found) is None else found


class _Introduction(Struct, rename="camel"):
    protocol_version: str = ""


@cached_if_short(256)
def normal_capabilities(capabilities: bytes) -> bytes:
    """Return the capabilities that servers act on, in the same form for equivalent declarations.

    Other members, such as `experimental`, are ignored: otherwise a client could create any number
    of keys.
    """
    try:
        declared = msgspec.json.decode(capabilities)
    except (msgspec.DecodeError, RecursionError):
        return b"{}"
    found: dict[str, Any] = {}
    if isinstance(declared, dict):
        if isinstance(asked := declared.get("elicitation"), dict):
            modes = [mode for mode in ("form", "url") if mode in asked]
            # An empty `elicitation` object means form mode.
            found["elicitation"] = {mode: {} for mode in modes or ["form"]}
        if isinstance(asked := declared.get("sampling"), dict):
            found["sampling"] = {"tools": {}} if "tools" in asked else {}
        if isinstance(declared.get("roots"), dict):
            found["roots"] = {}
        if isinstance(extensions := declared.get("extensions"), dict):
            kept: dict[str, Any] = {name: {} for name in PASSED_EXTENSIONS if name in extensions}
            found.update({"extensions": kept} if kept else {})
    return msgspec.json.encode(found, order="sorted")


def declared_capabilities(connection: UpstreamConnection) -> dict[str, Any]:
    """Return the capabilities that a connection declared, in their normal form."""
    caller = connection.opened_for
    if connection.stateless:
        return {}  # each request declares its own
    declared = connection.peer.conversation.identity.capabilities
    if caller is not None:
        declared = caller.capabilities
        declared = for_handshake_server(declared) if caller.stateless else declared
    return _decoded(normal_capabilities(declared))


def describe_key(key: ConnectionKey) -> dict[str, Any]:
    """Return a key as plain data."""
    return {
        "revision": key.revision,
        "capabilities": _decoded(key.capabilities),
        "principal": principal_name(key.principal),
        "in_session": key.in_session,
        "exclusive": key.session is not None,  # only one session is suspended
    }


def _decoded(capabilities: bytes) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(capabilities)
    return found
