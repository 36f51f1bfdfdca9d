"""The client's end of a WebSocket: what a server says beside the protocol must not disturb it."""

from ...errors import RemoteProtocolError
from ...protocol.json_edit import RawMembers, members_of
from ...wire import Decoder, Notification, to_json
from ...wire.error_codes import INVALID_REQUEST
from .websocket_channel import WebSocketChannel

__all__ = ["WebSocketClientChannel", "read_bare_notification", "to_jsonrpc"]


def to_jsonrpc(members: RawMembers, *names: str) -> bytes:
    """A frame with these members, as JSON-RPC has it."""
    return to_json({"jsonrpc": "2.0", **{n: members[n] for n in names if n in members}})


def read_bare_notification(members: RawMembers) -> Notification | None:
    """A notification that somebody sent without the envelope, if this is one."""
    if "id" in members or "method" not in members:
        return None
    try:
        message = Decoder().decode(to_jsonrpc(members, "method", "params"))
    except RemoteProtocolError:
        return None
    return message if isinstance(message, Notification) else None


class WebSocketClientChannel(WebSocketChannel):
    """Objects that are no JSON-RPC and answer nothing of ours (`{"type": "ping"}`) pass by."""

    def unread(self, frame: bytes, error: RemoteProtocolError) -> None:
        members = members_of(frame) if error.code == INVALID_REQUEST else None
        if members is None or "jsonrpc" in members or error.request_id is not None:
            super().unread(frame, error)
        elif (told := read_bare_notification(members)) is not None:
            self.hand_over(told)
