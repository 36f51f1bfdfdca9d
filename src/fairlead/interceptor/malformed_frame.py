"""Frames that violate the protocol and cannot be answered, for logs and tapes."""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..protocol.envelope import Direction, TransportContext

__all__ = ["MalformedFrame", "OnMalformed"]


class MalformedFrame(Struct, frozen=True, kw_only=True):
    """Received frame that is not a message, or not a message that is allowed at this point."""

    frame: bytes  # as received, with secrets; empty if it exceeded the size limit
    size: int
    kind: Literal["no message", "nobody asked", "refused"]
    why: str
    direction: Direction
    transport: TransportContext

    @property
    def is_json(self) -> bool:
        """Return True if the frame is JSON, so that secrets can be found by member names."""
        try:
            _read(self.frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return True


_read = msgspec.json.Decoder().decode

OnMalformed: TypeAlias = Callable[[MalformedFrame], object]
