"""A request that came alone, outside any connection: from a program, or one tool to another."""

from ..interceptor import Exchange
from ..interceptor.direct_edge import DirectEdge
from ..protocol.caller import Caller, Head, read_head
from ..protocol.conversation import Conversation
from ..protocol.envelope import Direction, TransportContext
from ..wire import Request
from .correlation import HEADER

__all__ = ["direct_exchange"]


def direct_exchange(
    message: Request,
    caller: Caller,
    head: Head | None = None,
    conversation: Conversation | None = None,
    correlation_id: str | None = None,
) -> Exchange:
    """Return an exchange for a request that came outside of any connection."""
    return Exchange(
        message,
        caller,
        head or read_head(message.params),
        Direction.CLIENT_TO_SERVER,
        TransportContext(
            transport_type="direct",
            headers=None if correlation_id is None else {HEADER: correlation_id},
        ),
        DirectEdge(caller.principal, conversation),
    )
