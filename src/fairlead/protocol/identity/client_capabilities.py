"""Conversion of a client's capabilities for a server of the other era."""

from msgspec import Raw

from ..caller import cached_if_short
from ..downgrade.capabilities import downgrade_capabilities
from ..json_edit import encoded, members_of
from ..revisions import NEWEST_HANDSHAKE

__all__ = ["PASSED_EXTENSIONS", "for_handshake_server", "for_stateless_server"]

# Extensions whose messages are the same in both eras and are forwarded unchanged.
PASSED_EXTENSIONS = ("io.modelcontextprotocol/ui",)


@cached_if_short(256)
def for_handshake_server(capabilities: bytes) -> bytes:
    """Convert a stateless client's capabilities for `initialize`."""
    # The eras define tasks differently, so they are removed with everything the revision lacks.
    known = bytes(downgrade_capabilities(Raw(capabilities), NEWEST_HANDSHAKE))
    return _with_extensions(known)


@cached_if_short(256)
def for_stateless_server(capabilities: bytes) -> bytes:
    """Convert a handshake client's capabilities for the `_meta` of each stateless request."""
    members = members_of(capabilities) or {}
    members.pop("tasks", None)
    if "roots" in members:
        # `listChanged` is removed, because a stateless server is not notified of changed roots.
        members["roots"] = Raw(b"{}")
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
