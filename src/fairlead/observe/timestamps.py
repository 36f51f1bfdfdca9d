"""When something passed, for those who hear of it later than it happened."""

from typing import NamedTuple

__all__ = ["Timestamp"]


class Timestamp(NamedTuple):
    """One moment by both clocks; processes of one machine share them."""

    steady: float  # `time.monotonic()`: what lies between two of them is how long it took
    wall: float  # `time.time()`: what to show
