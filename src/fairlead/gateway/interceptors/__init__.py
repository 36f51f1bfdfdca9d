"""What may be done to messages on their way: one behaviour per file, all of one shape.

Each is `async (exchange, proceed) -> Answer`, for requests and notifications in both directions.
What an answer is like, they see behind `proceed`.

Some say more about themselves:

* `also` names methods that they have to see whatever a rule's conditions say;
* `pure` says that they only look and change: they may be tried out on a recording;
* `waits`, if it is False, says that they wait for nothing but what is behind them, and use nothing
  that needs a task of asyncio: a request that meets only such ones needs none either;
* a `TwoHalves` is one of those, which says what it does before and what it does after;
* `passes(exchange)` says beforehand whether a message is none of their business, and so is its
  answer.

What a class says so is about its own `__call__`, or `before`: one that is derived from it and has
another says it anew, or is taken for one that says nothing.
"""

from .allowing import Allow
from .auditing import Audit
from .blocking import Block, blocked
from .caching import Cache
from .checking import SchemaCheck
from .delaying import Delay
from .editing import with_params
from .faults import Fault
from .guarding import Policy, guarded
from .injecting import Inject
from .loading import load_interceptor
from .mocking import Mock
from .rate import RateLimit
from .redacting import Redact
from .registry import ACTIONS, register
from .renaming import Rename
from .size import SizeLimit
from .timing import TimeLimit

__all__ = [
    "ACTIONS",
    "Allow",
    "Audit",
    "Block",
    "Cache",
    "Delay",
    "Fault",
    "Inject",
    "Mock",
    "Policy",
    "RateLimit",
    "Redact",
    "Rename",
    "SchemaCheck",
    "SizeLimit",
    "TimeLimit",
    "blocked",
    "guarded",
    "load_interceptor",
    "register",
    "with_params",
]
