"""Timestamps of events that are processed later than they happened."""

from typing import NamedTuple

__all__ = ["Timestamp"]


class Timestamp(NamedTuple):
    """One moment on both clocks, which the processes of a machine share."""

    steady: float  # `time.monotonic()`, for durations
    wall: float  # `time.time()`, for display
