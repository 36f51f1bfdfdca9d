"""One exchange at a time, and what may stand around its handler."""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names
from .chain import Interceptor, Proceed, chain
from .exchange import Answer, Edge, Exchange, Handler
from .extra_members import Members, OnMembers, beside
from .interceptor_flags import claims
from .malformed_frame import Offence, OnOffence, hearers
from .sync_interceptor import After, Outcome, TwoHalves

if TYPE_CHECKING:
    from .circuit_breaker import CircuitBreaker
    from .rate_limiter import RateLimiter

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

# Limits are loaded by those who have some.
__getattr__ = lazy_names(
    __name__,
    {
        "CircuitBreaker": "fairlead.interceptor.circuit_breaker",
        "RateLimiter": "fairlead.interceptor.rate_limiter",
    },
)
