"""Rate limiter with token buckets, for all calls together and for each tool."""

import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["RateLimiter"]


class RateLimiter:
    """Token buckets with `rate` tokens per second and at most `burst` tokens. A call takes a token.

    A rate of 0 means no limit. `per_tool_rate` is one number for every tool, or a mapping from tool
    names to numbers; tools that are not in it have no limit. A refused call takes no token from any
    bucket.
    """

    def __init__(
        self,
        rate: float = 0.0,
        burst: float = 0,
        per_tool_rate: float | Mapping[str, float] = 0.0,
        per_tool_burst: float = 0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create full buckets.

        A burst of 0 means the tokens of one second, but at least one token.
        """
        self._clock = clock
        self._per_tool_rate = per_tool_rate
        self._per_tool_burst = per_tool_burst
        self._all = _Bucket(rate, burst, clock()) if rate else None
        self._tools: dict[str, _Bucket | None] = {}
        self._allowed = 0
        self._limited: dict[str, int] = {}

    @property
    def active(self) -> bool:
        """Return True if any limit is set."""
        return self._all is not None or bool(self._per_tool_rate)

    def allow(self, tool: str = "") -> bool:
        """Take a token for one call from every bucket it needs;
        return False if a bucket is empty.
        """
        now = self._clock()
        everything = self._all
        # The shared token is taken last, so that a call over its tool's limit takes none.
        if everything is not None and everything.filled(now) < 1.0:
            return self._refuse(tool)
        if self._per_tool_rate:
            own = self._bucket_of(tool, now)
            if own is not None:
                if own.filled(now) < 1.0:
                    return self._refuse(tool)
                own.tokens -= 1.0
        if everything is not None:
            everything.tokens -= 1.0
        self._allowed += 1
        return True

    def wait(self, tool: str = "") -> float:
        """Return the seconds until a call of this tool would be allowed."""
        now = self._clock()
        buckets = (self._all, self._bucket_of(tool, now) if self._per_tool_rate else None)
        return max((b.wait(now) for b in buckets if b is not None), default=0.0)

    @property
    def metrics(self) -> dict[str, Any]:
        """Return the numbers of allowed and refused calls, and the remaining tokens."""
        now = self._clock()
        return {
            "allowed": self._allowed,
            "limited": sum(self._limited.values()),
            "limited_by_tool": dict(self._limited),
            "tokens": None if self._all is None else self._all.filled(now),
        }

    def reset(self) -> None:
        """Fill every bucket and clear the counts."""
        if self._all is not None:
            self._all.fill(self._clock())
        self._tools.clear()
        self._limited.clear()
        self._allowed = 0

    def _refuse(self, tool: str) -> bool:
        self._limited[tool] = self._limited.get(tool, 0) + 1
        return False

    def _bucket_of(self, tool: str, now: float) -> "_Bucket | None":
        if tool not in self._tools:
            rates = self._per_tool_rate
            rate = rates.get(tool, 0.0) if isinstance(rates, Mapping) else rates
            self._tools[tool] = _Bucket(rate, self._per_tool_burst, now) if rate else None
        return self._tools[tool]


class _Bucket:
    __slots__ = ("at", "burst", "rate", "tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        if rate < 0 or burst < 0:
            raise ValueError(f"rate and burst must not be negative: {rate:g}, {burst:g}")
        self.rate = rate
        self.burst = burst or max(rate, 1.0)
        self.fill(now)

    def fill(self, now: float) -> None:
        self.tokens = float(self.burst)
        self.at = now

    def filled(self, now: float) -> float:
        """Return the currently available tokens; a clock that goes backwards adds none."""
        if now > self.at:
            self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        return self.tokens

    def wait(self, now: float) -> float:
        """Return the seconds until a token is available."""
        return max(0.0, (1.0 - self.filled(now)) / self.rate)
