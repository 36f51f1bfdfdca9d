"""Frames that break the rules: nobody can answer them, but somebody may want to look at them."""

import logging
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..protocol.envelope import Direction, TransportContext
from .chain import Interceptor
from .interceptor_base import InterceptorBase, hooks_of, overrides

__all__ = ["MalformedFrame", "OnMalformed", "malformed_frame_hook"]

log = logging.getLogger("fairlead.interceptor")


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


def malformed_frame_hook(interceptors: Iterable[Interceptor]) -> OnMalformed | None:
    """Combine the hooks `on_malformed` of interceptors; None if no interceptor defines it.

    Then frames need not be kept until they are known to be messages.
    """
    wanting: list[OnMalformed] = [
        one.on_malformed
        for one in map(hooks_of, interceptors)
        if overrides(one, InterceptorBase.on_malformed)
    ]
    if not wanting:
        return None

    def tell(offence: MalformedFrame) -> None:
        for heard in wanting:
            try:
                heard(offence)
            except Exception as exc:  # somebody else's code
                log.error("an interceptor failed on an offence: %s", type(exc).__name__)

    return tell
