"""One exchange at a time, and what may stand around its handler."""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names
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

# Limits are loaded by those who have some.
__getattr__ = lazy_names(
    __name__,
    {"CircuitBreaker": "fairlead.interceptor.breaker", "RateLimiter": "fairlead.interceptor.limit"},
)
