"""Received frames that violate the protocol, for logs and tapes."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct

from ..protocol.envelope import Direction, TransportContext
from ..wire.json import read_json

__all__ = ["MalformedFrame", "OnMalformed"]


class MalformedFrame(Struct, frozen=True, kw_only=True):
    """Received frame that is not a valid message,
    or a message that is not allowed in this state.
    """

    frame: bytes  # as received, secrets included; empty if it exceeded the size limit
    size: int
    kind: Literal["not a message", "unmatched", "refused"]
    why: str
    direction: Direction
    transport: TransportContext

    @property
    def is_json(self) -> bool:
        """Return True if the frame is JSON, so that secrets can be found by member names."""
        return read_json(self.frame, object, UNSET) is not UNSET


OnMalformed: TypeAlias = Callable[[MalformedFrame], object]
