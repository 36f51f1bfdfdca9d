"""Timestamps for events that are processed later than they occurred."""

from typing import NamedTuple

__all__ = ["Timestamp"]


class Timestamp(NamedTuple):
    """A point in time on both clocks, which all processes of a machine share."""

    steady: float  # `time.monotonic()`, for durations
    wall: float  # `time.time()`, for display
