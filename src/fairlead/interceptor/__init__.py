"""One exchange at a time, and what may stand around its handler."""

from typing import TYPE_CHECKING, Any

from .beside import Members, OnMembers, beside
from .chain import Interceptor, Proceed, chain
from .claims import claims
from .exchange import Answer, Edge, Exchange, Handler
from .halves import After, Outcome, TwoHalves
from .offence import Offence, OnOffence, hearers

if TYPE_CHECKING:
    from .breaker import CircuitBreaker
    from .limit import RateLimiter

__all__ = [
    "After",
    "Answer",
    "CircuitBreaker",
    "Edge",
    "Exchange",
    "Handler",
    "Interceptor",
    "Members",
    "Offence",
    "OnMembers",
    "OnOffence",
    "Outcome",
    "Proceed",
    "RateLimiter",
    "TwoHalves",
    "beside",
    "chain",
    "claims",
    "hearers",
]


def __getattr__(name: str) -> Any:
    """Limits are loaded by those who have some."""
    if name == "RateLimiter":
        from .limit import RateLimiter

        return RateLimiter
    if name == "CircuitBreaker":
        from .breaker import CircuitBreaker

        return CircuitBreaker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
