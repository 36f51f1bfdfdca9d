"""Actions of rules: one interceptor per file, entered under its name in `action_registry.py`.

Each is `async (exchange, proceed) -> Answer`, for requests and notifications in both directions.
The response is what `proceed` returns.

Each derives from `InterceptorBase`, whose docstring lists the hooks and flags that an action may
define, or from `SyncInterceptor`, which a relay calls without a task.
"""

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
