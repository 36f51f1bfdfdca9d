"""Exchanges, and interceptors for their handlers."""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names, public_names
from .chain import Interceptor, Proceed, chain
from .combined_hooks import extra_members_hook, malformed_frame_hook
from .exchange import Answer, Exchange, Handler, ReplyPath, ReplyPathBase
from .interceptor_base import EditExtraMembers, ExtraMembers, InterceptorBase, hooks_of, overrides
from .malformed_frame import MalformedFrame, OnMalformed

if TYPE_CHECKING:
    from .circuit_breaker import CircuitBreaker
    from .rate_limiter import RateLimiter
    from .sync_interceptor import After, Outcome, SyncInterceptor

__all__ = [
    "After",
    "Answer",
    "CircuitBreaker",
    "EditExtraMembers",
    "Exchange",
    "ExtraMembers",
    "Handler",
    "Interceptor",
    "InterceptorBase",
    "MalformedFrame",
    "OnMalformed",
    "Outcome",
    "Proceed",
    "RateLimiter",
    "ReplyPath",
    "ReplyPathBase",
    "SyncInterceptor",
    "chain",
    "extra_members_hook",
    "hooks_of",
    "malformed_frame_hook",
    "overrides",
]

# Imported on first use, because a server without interceptors needs none of these.
# Hidden from type checkers, which would accept any misspelled name.
if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "After": "fairlead.interceptor.sync_interceptor",
            "CircuitBreaker": "fairlead.interceptor.circuit_breaker",
            "Outcome": "fairlead.interceptor.sync_interceptor",
            "RateLimiter": "fairlead.interceptor.rate_limiter",
            "SyncInterceptor": "fairlead.interceptor.sync_interceptor",
        },
    )
    __dir__ = public_names(__name__)
