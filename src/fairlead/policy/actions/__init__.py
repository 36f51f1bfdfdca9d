"""What may be done to messages on their way: one behaviour per file, all of one shape.

Each is `async (exchange, proceed) -> Answer`, for requests and notifications in both directions.
What an answer is like, they see behind `proceed`.

Each derives from `InterceptorBase`, whose docstring lists the hooks and flags that an action may
define, or from `SyncInterceptor`, which a relay calls without a task.
"""

from ..edit_message import with_params
from ..interceptor_failures import FailurePolicy, with_failure_policy
from ..load_interceptor import load_interceptor
from .access import Allow
from .action_registry import ACTIONS, register
from .audit import Audit
from .block import Block, blocked_error
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
    "ACTIONS",
    "Allow",
    "Audit",
    "Block",
    "Cache",
    "Delay",
    "FailurePolicy",
    "Fault",
    "Inject",
    "Mock",
    "RateLimit",
    "Redact",
    "Rename",
    "SchemaCheck",
    "SizeLimit",
    "TimeLimit",
    "blocked_error",
    "load_interceptor",
    "register",
    "with_failure_policy",
    "with_params",
]
