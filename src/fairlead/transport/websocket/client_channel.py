"""The client's channel on a WebSocket, which tolerates frames that are not JSON-RPC."""

from ...errors import RemoteProtocolError
from ...protocol.json_edit import RawMembers, members_of
from ...wire import Decoder, Notification, to_json
from ...wire.error_codes import INVALID_REQUEST
from .websocket_channel import WebSocketChannel

__all__ = ["WebSocketClientChannel", "read_bare_notification", "to_jsonrpc"]


def to_jsonrpc(members: RawMembers, *names: str) -> bytes:
    """Return a JSON-RPC frame with the given members."""
    return to_json({"jsonrpc": "2.0", **{n: members[n] for n in names if n in members}})


def read_bare_notification(members: RawMembers) -> Notification | None:
    """Return the notification in a frame that lacks the `jsonrpc` member, or None."""
    if "id" in members or "method" not in members:
        return None
    try:
        message = Decoder().decode(to_jsonrpc(members, "method", "params"))
    except RemoteProtocolError:
        return None
    return message if isinstance(message, Notification) else None


class WebSocketClientChannel(WebSocketChannel):
    """A WebSocket channel that ignores objects that are neither JSON-RPC nor a response.

    An example is `{"type": "ping"}`, which some servers send.
    """

    def unread(self, frame: bytes, error: RemoteProtocolError) -> None:
        members = members_of(frame) if error.code == INVALID_REQUEST else None
        if members is None or "jsonrpc" in members or error.request_id is not None:
            super().unread(frame, error)
        elif (told := read_bare_notification(members)) is not None:
            self.hand_over(told)
