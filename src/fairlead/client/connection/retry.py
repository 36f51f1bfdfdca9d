"""Retries: transient failures, requests that may be repeated, and delays.

A request that may have reached the server is repeated only if that is harmless. Reads can be
repeated; a tool call cannot, unless the server or the caller declares it safe.
"""

from collections.abc import Iterator

from msgspec import Struct

from ...errors import ChannelClosed, ConnectFailed, HttpError, RetriesExhausted, TransportError
from ...transport.backoff import Backoff

__all__ = ["Retry", "restarts", "retries_exhausted", "server_requested_delay"]

# Includes this package's errors: RequestTimeout is a TimeoutError, ChannelClosed a ConnectionError.
TRANSIENT = (TimeoutError, OSError, ConnectFailed)
SHORTEST_DELAY, LONGEST_DELAY = 0.05, 30.0  # seconds between two retries, at least and at most

# Methods with side effects. All others only read, or set a value that may be set twice.
_HAS_EFFECTS = frozenset(("tools/call", "tasks/update"))


class Retry(Struct):
    """The number and delays of retries, and the requests that may be retried."""

    max_retries: int = 3
    delay: float = 0.5  # seconds before the first retry
    tool_calls: bool = False  # all tool calls may be repeated, regardless of their annotations

    def allows(
        self,
        method: str,
        failure: BaseException,
        *,
        harmless: bool = False,
        wanted: bool | None = None,
    ) -> bool:
        """Return True if a failed request may be sent again.

        `harmless` means that the tool is declared read-only or idempotent. `wanted` is the caller's
        decision, if any.
        """
        passes = isinstance(failure, TRANSIENT) or _is_overload(failure)
        if not passes or wanted is False or self.max_retries <= 0:
            return False
        if not _may_have_arrived(failure):
            return True
        return method not in _HAS_EFFECTS or harmless or self.tool_calls or wanted is True

    def delays(self) -> Iterator[float]:
        """Yield the seconds to wait before each retry; they double each time, with jitter, up to a
        limit.

        The delay that a server requests (`server_requested_delay`) is the minimum.
        """
        backoff = Backoff(self.delay, LONGEST_DELAY)
        for _ in range(self.max_retries):
            yield backoff.next()


def restarts(delay: float) -> Backoff:
    """Return the delays between an unlimited number of connection attempts."""
    return Backoff(max(delay, SHORTEST_DELAY), LONGEST_DELAY)


def retries_exhausted(method: str, retries: int, cause: BaseException) -> RetriesExhausted:
    """Build the error for a request whose last retry failed. Raise it `from` the cause."""
    return RetriesExhausted(
        f"Request {method} failed after {retries} retries: {_summary(cause)}",
        delivered=_may_have_arrived(cause),
    )


def server_requested_delay(failure: BaseException) -> float:
    """Return the number of seconds that the server asks to wait, up to a limit."""
    asked = failure.retry_after if isinstance(failure, HttpError) else None
    return min(asked or 0.0, LONGEST_DELAY)


def _is_overload(failure: BaseException) -> bool:
    """Return True if the server rejected the request because of overload, without executing it."""
    return isinstance(failure, HttpError) and failure.status in (429, 503)


def _may_have_arrived(failure: BaseException) -> bool:
    return failure.delivered if isinstance(failure, TransportError) else True


def _summary(cause: BaseException) -> str:
    if isinstance(cause, ChannelClosed | ConnectFailed):
        return cause.summary
    return str(cause) or type(cause).__name__
