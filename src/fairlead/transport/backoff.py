"""Exponential backoff: the delays between attempts at something that fails or ends."""

import random

__all__ = ["Backoff", "exponential"]


def exponential(initial: float, attempt: int, maximum: float) -> float:
    """Return the delay after `attempt` earlier ones, each twice the one before, without jitter."""
    # A larger exponent would overflow a float.
    return min(initial * 2.0 ** min(attempt, 64), maximum)


class Backoff:
    """Delays in seconds that double with each attempt, up to `maximum`, until a reset.

    A delay is shortened by up to `jitter` of itself, so that clients that failed together do not
    retry together.
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
        self.delay = initial  # the last delay, without jitter

    def next(self) -> float:
        """Return the next delay and store its value without jitter in `delay`."""
        self.delay = exponential(self._initial, self._attempts, self._maximum)
        self._attempts += 1
        return self.delay * random.uniform(1.0 - self._jitter, 1.0)

    def after(self, lasted: float) -> float:
        """Return the next delay after an attempt that ended after `lasted` seconds.

        If it lasted at least as long as the last delay, the delays start again with the initial
        one. A connection that ends regularly after a while is reopened soon; one that ends at once
        is retried ever more slowly.
        """
        if lasted >= self.delay:
            self.reset()
        return self.next()

    def undo(self) -> None:
        """Undo the last increase, because that delay was cut short."""
        self._attempts = max(0, self._attempts - 1)

    def reset(self) -> None:
        """Start again with the initial delay."""
        self._attempts = 0
        self.delay = self._initial
