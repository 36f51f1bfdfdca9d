"""What may be done to messages on their way: one behaviour per file, all of one shape.

Each is `async (exchange, proceed) -> Answer`, for requests and notifications in both directions.
What an answer is like, they see behind `proceed`.

Some say more about themselves:

* `also` names methods that they have to see whatever a rule's conditions say;
* `pure` says that they only look and change: they may be tried out on a recording;
* `waits`, if it is False, says that they wait for nothing but what is behind them: they get no time
  limit of their own, and the rules behind them need not be looked up again;
* a `SyncInterceptor` is one of those, which says what it does before and what it does after: a
  relay calls it without a task;
* `passes(exchange)` says beforehand whether a message is none of their business, and so is its
  answer.

What a class says so is about its own `__call__`, or `before`: one that is derived from it and has
another says it anew, or is taken for one that says nothing.
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
