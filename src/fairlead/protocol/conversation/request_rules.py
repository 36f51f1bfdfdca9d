"""Rules that determine which requests each side may send."""

from ...errors import LocalProtocolError
from ...wire.error_codes import INVALID_REQUEST, METHOD_NOT_FOUND
from ..caller import Caller
from ..envelope import SessionState
from ..methods import METHOD_NAMES, find

__all__ = ["check_before_handshake", "check_server_request"]


def check_before_handshake(method: str, state: SessionState, is_client: bool, gated: bool) -> None:
    """Check that a request may be sent in the current state of the connection (PRO-01).

    Before the handshake, only `ping` and the handshake requests are allowed, or all requests if
    `gated` is False. After the connection has closed, none is allowed.

    Raises:
        LocalProtocolError: The request must not be sent in this state.
    """
    if state is SessionState.CLOSING or state is SessionState.CLOSED:
        raise LocalProtocolError("Transport not connected", code=INVALID_REQUEST)
    if not gated:
        return
    if not is_client:
        if state is SessionState.INITIALIZING and method == "ping":
            return
        raise LocalProtocolError(
            f"{method} cannot be sent: this peer has not sent initialize", code=METHOD_NOT_FOUND
        )
    if method not in ("initialize", "server/discover", "ping"):
        raise LocalProtocolError(
            f"{method} cannot be sent before the handshake is complete", code=INVALID_REQUEST
        )


def check_server_request(method: str, client: Caller, *, undeclared: bool = False) -> None:
    """Check that the client supports a request from its server.

    With `undeclared`, only the revision is checked; the client itself refuses requests whose
    capability it did not declare.

    Raises:
        LocalProtocolError: The client's revision or capabilities do not include the request.
    """
    row = find(method, client.revision)
    if row is None and method in METHOD_NAMES:
        raise LocalProtocolError(
            f"{method} is not part of {client.revision}", code=METHOD_NOT_FOUND
        )
    if undeclared or row is None or not row.capability:
        return
    if not client.can(row.capability):
        raise LocalProtocolError(
            f"{method} needs the client capability {row.capability!r}, which "
            f"{client.name} did not declare",
            code=METHOD_NOT_FOUND,
        )
