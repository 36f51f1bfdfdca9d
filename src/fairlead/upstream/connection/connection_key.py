"""Keys of connections. Clients with equal keys look the same to a server and may share one."""

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from ...protocol.caller import Caller
from ...protocol.identity.client_capabilities import (
    PASSED_EXTENSIONS,
    can_be_asked,
    for_handshake_server,
)
from ...protocol.identity.principal import ANONYMOUS, Principal
from ...protocol.revisions import NEWEST_HANDSHAKE

__all__ = [
    "STATELESS",
    "ConnectionKey",
    "key_of_caller",
    "key_of_session",
    "normal_capabilities",
]


class ConnectionKey(Struct, frozen=True, cache_hash=True):
    """The principal of a client, and its properties that a server sees.

    Clients with equal keys may share a connection.
    """

    stateless: bool
    revision: str = ""  # the revision that the client proposed in `initialize`
    capabilities: bytes = b"{}"  # the declared capabilities in their normal form
    principal: Principal = ANONYMOUS
    # True for a client with a session that the server can send requests to
    in_session: bool = False
    # A session and a stateless caller that can be asked never share a connection: the parked call
    # of the latter keeps its turn for minutes.


# one key for all clients, because every stateless request describes its client
STATELESS = ConnectionKey(stateless=True)


def key_of_caller(caller: Caller) -> ConnectionKey:
    """Return the key of a stateless caller at a server of the handshake era."""
    return _caller_key(caller.capabilities, caller.principal)


def key_of_session(caller: Caller, introduction: bytes) -> ConnectionKey:
    """Return the key of a session at a server of the handshake era.

    `introduction` are the params of its `initialize`.
    """
    return ConnectionKey(
        False,
        _version(bytes(introduction)),
        normal_capabilities(caller.capabilities),
        caller.principal,
        can_be_asked(caller.capabilities),
    )


@lru_cache(maxsize=1024)  # cached, because it is called for every request
def _caller_key(capabilities: bytes, principal: Principal) -> ConnectionKey:
    normal = normal_capabilities(for_handshake_server(capabilities))
    return ConnectionKey(False, NEWEST_HANDSHAKE.value, normal, principal)


@lru_cache(maxsize=256)
def _version(introduction: bytes) -> str:
    try:
        found = msgspec.json.decode(introduction, type=_Introduction).protocol_version
    except (msgspec.DecodeError, RecursionError):
        return ""
    # A longer text is not a revision, and clients could fill the memory with such keys.
    return found if len(found) <= 32 else ""


class _Introduction(Struct, rename="camel"):
    protocol_version: str = ""


@lru_cache(maxsize=256)
def normal_capabilities(capabilities: bytes) -> bytes:
    """Return the capabilities that servers act on, in one form for all equivalent declarations.

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
