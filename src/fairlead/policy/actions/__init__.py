"""Actions of rules: one interceptor per module, registered by name in `action_registry.py`.

Each action has the signature `async (exchange, proceed) -> Answer` and handles requests and
notifications in both directions. `proceed` returns the response.

Actions derive from `InterceptorBase`, whose docstring lists the hooks and flags that an action may
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
