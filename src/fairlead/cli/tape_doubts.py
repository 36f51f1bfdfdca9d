"""What is wrong with a tape, told to whoever uses it: it is used all the same, as it stands."""

from pathlib import Path
from typing import TYPE_CHECKING

from .failed import say
from .output import visible

if TYPE_CHECKING:
    from ..gateway.tape import TapeReader

__all__ = ["tell_doubts"]


def tell_doubts(*readers: "TapeReader") -> None:
    """On stderr, once it was read."""
    from ..gateway.tape.doubts import doubts

    for reader in {one.base: one for one in readers}.values():
        whose = f"{Path(reader.base).name}: " if len(readers) > 1 else ""
        for sentence in doubts(reader):
            say("note", visible(f"{whose}{sentence}"), "33")
