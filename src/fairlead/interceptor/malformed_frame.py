"""Frames that break the rules: they cannot be answered, but a log or a tape may show them."""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..protocol.envelope import Direction, TransportContext

__all__ = ["MalformedFrame", "OnMalformed"]


class MalformedFrame(Struct, frozen=True, kw_only=True):
    """Something that came and is no message, or none that may come here and now."""

    frame: bytes  # as it came, secrets and all; empty if it was too long to be read
    size: int
    kind: Literal["no message", "nobody asked", "refused"]
    why: str
    direction: Direction
    transport: TransportContext

    @property
    def is_json(self) -> bool:
        """Whether it can be read at all: then secrets are found by the names that they have."""
        try:
            _read(self.frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return True


_read = msgspec.json.Decoder().decode

OnMalformed: TypeAlias = Callable[[MalformedFrame], object]
