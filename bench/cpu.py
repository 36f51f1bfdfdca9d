"""Which CPUs a measurement runs on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["one_cpu"]


@contextmanager
def one_cpu(wanted: bool) -> Iterator[None]:
    """This process, and those it starts meanwhile, on one CPU; where the system can do that.

    With one call at a time, one side runs while the other waits. On two CPUs each call then pays
    twice for waking a sleeping CPU, which on a virtual machine takes longer than the call, and the
    scheduler changes its mind about it from burst to burst. On one CPU what is left is the work.
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
