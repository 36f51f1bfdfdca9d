"""The client's end of a WebSocket: what a server says beside the protocol must not disturb it."""

import msgspec
from msgspec import Raw

from ...errors import RemoteProtocolError
from ...wire import Decoder, Notification, to_json
from ...wire.error_codes import INVALID_REQUEST
from .channel import WebSocketChannel

__all__ = [
    "FrameMembers",
    "WebSocketClientChannel",
    "members_of",
    "read_bare_notification",
    "to_jsonrpc",
]

FrameMembers = dict[str, Raw]

_decode_members = msgspec.json.Decoder(FrameMembers).decode


def members_of(frame: bytes) -> FrameMembers | None:
    """The members of a frame that is a JSON object."""
    try:
        return _decode_members(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def to_jsonrpc(members: FrameMembers, *names: str) -> bytes:
    """A frame with these members, as JSON-RPC has it."""
    return to_json({"jsonrpc": "2.0", **{n: members[n] for n in names if n in members}})


def read_bare_notification(members: FrameMembers) -> Notification | None:
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
