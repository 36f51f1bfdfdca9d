"""Which requests each side may send, and when."""

from ...errors import LocalProtocolError
from ...wire.error_codes import INVALID_REQUEST, METHOD_NOT_FOUND
from ..caller import Caller
from ..envelope import SessionState
from ..methods import exists, find

__all__ = ["check_before_handshake", "check_server_request"]


def check_before_handshake(method: str, state: SessionState, is_client: bool, gated: bool) -> None:
    """Allow nothing but `ping` before the handshake is done (PRO-01), and nothing after the end.

    Without `gated`, everything is allowed before the end.

    Raises:
        LocalProtocolError: the request may not be sent in this state, which is not active.
    """
    if state is SessionState.CLOSING or state is SessionState.CLOSED:
        raise LocalProtocolError("Transport not connected", code=INVALID_REQUEST)
    if not gated:
        return
    if not is_client:
        if state is SessionState.INITIALIZING and method == "ping":
            return
        raise LocalProtocolError(
            f"{method} cannot be asked: this peer has made no handshake", code=METHOD_NOT_FOUND
        )
    if method not in ("initialize", "server/discover", "ping"):
        raise LocalProtocolError(
            f"{method} cannot be sent before the handshake is done", code=INVALID_REQUEST
        )


def check_server_request(method: str, client: Caller) -> None:
    """Allow a server only requests for which its client declared the capability.

    Raises:
        LocalProtocolError: the client's revision or capabilities do not include the request.
    """
    row = find(method, client.revision)
    if row is None and exists(method):
        raise LocalProtocolError(
            f"{method} is not part of {client.revision}", code=METHOD_NOT_FOUND
        )
    if row is not None and row.capability and not client.can(row.capability):
        raise LocalProtocolError(
            f"{method} needs the client capability {row.capability!r}, which "
            f"{client.name} did not declare",
            code=METHOD_NOT_FOUND,
        )
