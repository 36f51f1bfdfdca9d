"""Comparison of this machine's clock with that of a server.

Proofs and assertions contain the time of their signature, and servers refuse those of another time.
Their error codes do not say so.
"""

from collections.abc import Mapping

from ..errors import AuthorizationError
from ..transport.http.client.http1.url import host_of

__all__ = ["check_clock", "clock_difference"]

NOTICED = 240.0  # seconds of difference that cause a warning; servers accept five minutes


def clock_difference(headers: Mapping[str, str], now: float) -> str:
    """Return a sentence about a clock that is off, from the `Date` of a response, or ""."""
    from email.utils import parsedate_to_datetime

    try:
        there = parsedate_to_datetime(headers.get("date", "")).timestamp()
    except (ValueError, OverflowError, OSError):
        return ""
    if abs(now - there) < NOTICED:
        return ""
    minutes = min(round(abs(now - there) / 60), 999_999)
    where = "ahead of" if now > there else "behind"
    clocks = f"the clock of this machine is {minutes} minutes {where} that of the server"
    return f"{clocks}: correct the wrong one"


def check_clock(headers: Mapping[str, str], now: float, url: str) -> None:
    """Raise an error if the clocks explain why a server refused a proof.

    Raises:
        AuthorizationError: The clocks differ, so another proof or login would be refused as well.
    """
    if hint := clock_difference(headers, now):
        why = f"{host_of(url)} refused the proof of this program: {hint}"
        raise AuthorizationError(why, step="token", server=url)
