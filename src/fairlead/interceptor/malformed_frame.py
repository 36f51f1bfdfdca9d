"""Frames that break the rules: nobody can answer them, but somebody may want to look at them."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..protocol.envelope import Direction, TransportContext

__all__ = ["Offence", "OnOffence", "hearers"]

log = logging.getLogger("fairlead.interceptor")


class Offence(Struct, frozen=True, kw_only=True):
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

OnOffence: TypeAlias = Callable[[Offence], object]


def hearers(interceptors: Iterable[Any]) -> OnOffence | None:
    """Those interceptors who want to hear of offences too: who have a method `offended`.

    None, if there are none: then nothing has to be remembered.
    """
    wanting: list[OnOffence] = [
        heard for one in interceptors if (heard := getattr(one, "offended", None)) is not None
    ]
    if not wanting:
        return None

    def tell(offence: Offence) -> None:
        for heard in wanting:
            try:
                heard(offence)
            except Exception as exc:  # somebody else's code
                log.error("an interceptor failed on an offence: %s", type(exc).__name__)

    return tell
