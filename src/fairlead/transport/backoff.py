"""Exponential backoff: delays between attempts to connect or to repeat a failed operation."""

import random

__all__ = ["Backoff", "exponential"]


def exponential(initial: float, attempt: int, maximum: float) -> float:
    """Return the delay in seconds before retry number `attempt`, counted from 0.

    Each delay is twice as long as the previous one, up to `maximum`. The result has no jitter.
    """
    # A larger exponent would overflow a float.
    return min(initial * 2.0 ** min(attempt, 64), maximum)


class Backoff:
    """Delays in seconds that double with each attempt, up to `maximum`, until a reset.

    Each delay is shortened by a random fraction of at most `jitter`, so that clients that failed at
    the same time do not retry at the same time.
    """

    def __init__(
        self,
        initial: float,
        maximum: float,
        *,
        jitter: float = 0.25,
    ) -> None:
        self._initial = initial
        self._maximum = maximum
        self._jitter = jitter
        self._attempts = 0
        self.delay = initial  # the delay last returned by `next`, without jitter

    def next(self) -> float:
        """Return the next delay and store its value without jitter in `delay`."""
        self.delay = exponential(self._initial, self._attempts, self._maximum)
        self._attempts += 1
        return self.delay * random.uniform(1.0 - self._jitter, 1.0)

    def after(self, lasted: float) -> float:
        """Return the next delay after an attempt that ended after `lasted` seconds.

        If the attempt lasted at least as long as the last delay, the delays start again with the
        initial delay. A connection that lasted for a while is therefore reopened soon, and a
        connection that ends immediately is reopened after growing delays.
        """
        if lasted >= self.delay:
            self.reset()
        return self.next()

    def undo(self) -> None:
        """Undo the last increase, because the caller did not wait for the full delay."""
        self._attempts = max(0, self._attempts - 1)

    def reset(self) -> None:
        """Start again with the initial delay."""
        self._attempts = 0
        self.delay = self._initial
