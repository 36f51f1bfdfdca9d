"""Trying again: which failures pass, what may be sent twice, and how long to wait in between.

A request that may have reached the server is sent again only if that cannot do harm: reading can
be repeated, calling a tool cannot, unless the server says so or the caller does.
"""

from collections.abc import Iterator

from ...errors import ChannelClosed, ConnectFailed, HttpError, RetriesExhausted, TransportError
from ...transport.backoff import Backoff

__all__ = [
    "LONGEST_DELAY",
    "TRANSIENT",
    "Retry",
    "restarts",
    "retries_exhausted",
    "server_requested_delay",
]

# Ours are among them: RequestTimeout is a TimeoutError, ChannelClosed a ConnectionError.
TRANSIENT = (TimeoutError, OSError, ConnectFailed)
SHORTEST_DELAY, LONGEST_DELAY = 0.05, 30.0  # seconds

# Everything else that a client asks only reads, or sets what may be set twice.
_HAS_EFFECTS = frozenset(("tools/call", "tasks/update"))


class Retry:
    """How often and how patiently a client tries again."""

    def __init__(
        self, max_retries: int = 3, delay: float = 0.5, *, tool_calls: bool = False
    ) -> None:
        """`tool_calls`: calls may be sent twice, whatever the tool says about itself."""
        self.max_retries = max_retries
        self._delay = delay
        self._tool_calls = tool_calls

    def allows(
        self,
        method: str,
        failure: BaseException,
        *,
        harmless: bool = False,
        wanted: bool | None = None,
    ) -> bool:
        """Whether a failed request may be sent again.

        `harmless`: the tool is said to be read-only or idempotent. `wanted`: the caller decided.
        """
        passes = isinstance(failure, TRANSIENT) or _is_overload(failure)
        if not passes or wanted is False or self.max_retries <= 0:
            return False
        if not _may_have_arrived(failure):
            return True
        return method not in _HAS_EFFECTS or harmless or self._tool_calls or wanted is True

    def delays(self) -> Iterator[float]:
        """Seconds to wait before each retry: doubling, with jitter, up to a cap.

        The delay that a server asks for (`server_requested_delay`) is the least.
        """
        backoff = Backoff(self._delay, LONGEST_DELAY)
        for _ in range(self.max_retries):
            yield backoff.next()


def restarts(delay: float) -> Backoff:
    """Return the delays before something that has ended is begun again, without end."""
    return Backoff(max(delay, SHORTEST_DELAY), LONGEST_DELAY)


def retries_exhausted(method: str, retries: int, cause: BaseException) -> RetriesExhausted:
    """What is raised after the last attempt; chain the cause to it."""
    return RetriesExhausted(
        f"Request {method} failed after {retries} retries: {_summary(cause)}",
        delivered=_may_have_arrived(cause),
    )


def server_requested_delay(failure: BaseException) -> float:
    """Seconds that the server itself wants us to wait, within reason."""
    asked = failure.retry_after if isinstance(failure, HttpError) else None
    return min(asked or 0.0, LONGEST_DELAY)


def _is_overload(failure: BaseException) -> bool:
    """The server has no time for us now, and did nothing."""
    return isinstance(failure, HttpError) and failure.status in (429, 503)


def _may_have_arrived(failure: BaseException) -> bool:
    return failure.delivered if isinstance(failure, TransportError) else True


def _summary(cause: BaseException) -> str:
    if isinstance(cause, ChannelClosed | ConnectFailed):
        return cause.summary
    return str(cause) or type(cause).__name__
