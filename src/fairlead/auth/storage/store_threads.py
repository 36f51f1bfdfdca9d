"""Threads for calls to credential stores, which may wait for a disk or for the system's keyring.

The default threads of an event loop also look up host names, so waiting calls there would delay the
connections to all other servers.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

__all__ = ["in_store_thread"]

THREADS = 4  # number of concurrent calls to credential stores

P = ParamSpec("P")
T = TypeVar("T")


async def in_store_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a method of a credential store in a thread and return its result."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads(), lambda: call(*args, **kwargs))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="fairlead-logins")


# The threads do not exist in a forked process.
os.register_at_fork(after_in_child=_threads.cache_clear)
