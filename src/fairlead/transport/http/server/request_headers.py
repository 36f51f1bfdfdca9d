"""Request headers for routing and for the content type of the response."""

from ....protocol.revisions import find_revision
from .asgi import AsgiCall, HttpCall

__all__ = ["accepts", "claims_stateless", "repeated_header", "wants_events"]

# If one of these occurs twice, a proxy may have used the value that the server ignores.
_ROUTING = (
    b"mcp-protocol-version",
    b"mcp-method",
    b"mcp-name",
    b"mcp-session-id",
    b"authorization",
    b"dpop",
    b"host",
    b"origin",
    b"content-type",
)


def repeated_header(call: AsgiCall) -> str | None:
    """Return the first routing header that occurs more than once."""
    names = [name for name, _ in call.scope["headers"]]
    for name in _ROUTING:
        if names.count(name) > 1:
            return name.decode()
    return None


def accepts(accept: bytes, *kinds: bytes) -> bool:
    """Return True if a value of `Accept` allows one of these content types."""
    accept = accept.lower()
    return b"*/*" in accept or any(
        kind in accept or kind.partition(b"/")[0] + b"/*" in accept for kind in kinds
    )


def wants_events(call: HttpCall) -> bool:
    """Return True if the client accepts an event stream."""
    accept = call.headers.get(b"accept")
    return accept is None or accepts(accept, b"text/event-stream")


def claims_stateless(headers: dict[bytes, bytes]) -> bool:
    """Return True if `MCP-Protocol-Version` names a stateless revision."""
    revision = find_revision(headers.get(b"mcp-protocol-version", b"").decode("latin-1"))
    return revision is not None and revision.stateless
