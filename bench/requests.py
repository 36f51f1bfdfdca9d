"""The two eras, and the requests that open a server."""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["INITIALIZE", "INITIALIZED", "Era", "list_tools"]


INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}\n'
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


class Era(Enum):
    """The two forms of a request; the value is the revision."""

    HANDSHAKE = "2025-11-25"
    STATELESS = "2026-07-28"

    @property
    def meta(self) -> bytes:
        """Return the `_meta` of a request's params."""
        if self is Era.HANDSHAKE:
            return b""
        return (
            b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
            b'"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},'
            b'"io.modelcontextprotocol/clientCapabilities":{}}'
        )


def list_tools(era: Era, number: int, cursor: str | None = None) -> bytes:
    """Return a `tools/list` line for the first page or for a cursor."""
    line = b'{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{%b}}\n'
    members = [era.meta] if era.meta else []
    if cursor is not None:
        members.append(b'"cursor":' + msgspec.json.encode(cursor))
    return line % (number, b",".join(members))
