"""What a client can do, as a server of the other era hears it."""

from functools import lru_cache

import msgspec
from msgspec import Raw

from ..downgrade.capabilities import downgrade_capabilities
from ..json_edit import encoded, members_of
from ..methods import has_capability
from ..revisions import NEWEST_HANDSHAKE

__all__ = [
    "PASSED_EXTENSIONS",
    "can_be_asked",
    "for_handshake_server",
    "for_stateless_server",
    "has_roots",
]

# Extensions whose messages pass as they are, whatever the era.
PASSED_EXTENSIONS = ("io.modelcontextprotocol/ui",)

_ASKED_BACK = ("elicitation", "sampling", "roots")


def can_be_asked(capabilities: bytes) -> bool:
    """Return True if a server may send requests to a client with these capabilities."""
    short = len(capabilities) < 1024  # long ones are not worth remembering
    return _remembered(capabilities) if short else _asks_back(capabilities)


def has_roots(capabilities: bytes) -> bool:
    """Return True if a server may ask a client with these capabilities for its roots."""
    return _declares(capabilities, ("roots",))


def _asks_back(capabilities: bytes) -> bool:
    return _declares(capabilities, _ASKED_BACK)


def _declares(capabilities: bytes, names: tuple[str, ...]) -> bool:
    try:
        declared = msgspec.json.decode(capabilities)
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(declared, dict) and any(has_capability(declared, name) for name in names)


_remembered = lru_cache(maxsize=256)(_asks_back)  # looked up with every call


@lru_cache(maxsize=256)
def for_handshake_server(capabilities: bytes) -> bytes:
    """What a stateless client declared, for `initialize`. Tasks differ between the eras."""
    known = bytes(downgrade_capabilities(Raw(capabilities), NEWEST_HANDSHAKE))
    return _with_extensions(known)


@lru_cache(maxsize=256)
def for_stateless_server(capabilities: bytes) -> bytes:
    """What a session declared, for the `_meta` of each request."""
    members = members_of(capabilities) or {}
    members.pop("tasks", None)
    if "roots" in members:
        members["roots"] = Raw(b"{}")  # a stateless server is not told when they change
    return _with_extensions(bytes(encoded(members)))


def _with_extensions(capabilities: bytes) -> bytes:
    members = members_of(capabilities) or {}
    extensions = members_of(members.get("extensions"))
    if extensions is None:
        return capabilities
    kept = {name: value for name, value in extensions.items() if name in PASSED_EXTENSIONS}
    if kept:
        members["extensions"] = encoded(kept)
    else:
        del members["extensions"]
    return bytes(encoded(members))
