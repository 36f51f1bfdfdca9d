"""CPU affinity of measurements."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["one_cpu"]


@contextmanager
def one_cpu(wanted: bool) -> Iterator[None]:
    """Run this process and its new children on one CPU, where the system supports that.

    With one call at a time, one side runs while the other waits. On two CPUs each call pays twice
    for waking up a CPU, which on a virtual machine takes longer than the call and varies from burst
    to burst. On one CPU only the work remains.
    """
    if not wanted or not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
