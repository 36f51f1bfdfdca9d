"""Tape entries built from messages."""

import json
from typing import Any

from msgspec import Raw

from fairlead.protocol.envelope import Direction
from fairlead.recording.tape.format import TapeEntry

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT


def entry(message: Any, way: Direction = UP, session: str | None = None) -> TapeEntry:
    raw = message if isinstance(message, bytes) else json.dumps(message).encode()
    return TapeEntry(seq=1, at=0.0, dir=way, message=Raw(raw), session=session)
