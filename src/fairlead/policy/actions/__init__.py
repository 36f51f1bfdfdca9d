"""Rule actions: one interceptor per module, registered by name in `ACTIONS`.

Each action has the signature `async (exchange, proceed) -> Answer` and handles requests and
notifications in both directions. `proceed` returns the response.

Actions derive from `InterceptorBase`, whose docstring lists the hooks and flags that an action may
define, or from `SyncInterceptor`, which a relay calls without a task.
"""

from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

from ...interceptor import Answer, Exchange, Interceptor, InterceptorBase, Proceed
from ..load_interceptor import load_interceptor
from .access import Allow
from .audit import Audit
from .block import Block
from .cache import Cache
from .delay import Delay
from .fault import Fault
from .inject import Inject
from .mock import Mock
from .rate_limit import RateLimit
from .redact import Redact
from .rename import Rename
from .schema_check import SchemaCheck
from .size_limit import SizeLimit
from .time_limit import TimeLimit

__all__ = [
    "Allow",
    "Audit",
    "Block",
    "Cache",
    "Delay",
    "Fault",
    "Inject",
    "Mock",
    "RateLimit",
    "Redact",
    "Rename",
    "SchemaCheck",
    "SizeLimit",
    "TimeLimit",
]

# A factory's parameters are the action's options; rule files must use their annotated types.
Factory: TypeAlias = Callable[..., Interceptor]


class PassThrough(InterceptorBase):
    """Action that forwards messages unchanged and ends the evaluation of later rules."""

    pure: ClassVar = True
    waits: ClassVar = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)


ACTIONS: Final[dict[str, Factory]] = {
    "access": Allow,
    "allow": PassThrough,
    "audit": Audit,
    "block": Block,
    "cache": Cache,
    "check": SchemaCheck,
    "delay": Delay,
    "fault": Fault,
    "inject": Inject,
    "mock": Mock,
    "rate": RateLimit,
    "redact": Redact,
    "rename": Rename,
    "size": SizeLimit,
    "timeout": TimeLimit,
    "use": load_interceptor,
}
