"""Detection of servers that can run only one process at a time: a second process exits during its
start.
"""

import time

from ...protocol.caller import ANONYMOUS, UNNAMED, Caller
from .connection_key import normal_capabilities

__all__ = ["StartExits", "is_named"]

REMEMBERED = 300.0  # seconds after which another process is tried, because the exit was a failure


class StartExits:
    """The capabilities with which a second process of a server has exited during its start.

    A process may exit because of the capabilities of one kind of client. The server counts as
    unable to run twice only if a process also exits for another kind, or without capabilities.
    """

    def __init__(self) -> None:
        self.has_run_twice = False  # True once a second process has run beside the first one
        # times of the exits, by the capabilities in their normal form
        self.capabilities: dict[bytes, float] = {}

    def second_opened(self) -> None:
        """Forget all exits, because a second process can run."""
        self.has_run_twice = True
        self.capabilities.clear()

    def count(self, caller: Caller) -> bool:
        """Count an exit; return True if the exits show that the server cannot run twice."""
        declared = normal_capabilities(caller.capabilities)
        self.capabilities[declared] = time.monotonic()
        recent = [one for one in self.capabilities if self._is_recent(one)]
        return declared == b"{}" or len(recent) > 1

    def concern(self, caller: Caller) -> bool:
        """Return True if a process has exited for clients with the same capabilities."""
        return self._is_recent(normal_capabilities(caller.capabilities))

    def _is_recent(self, declared: bytes) -> bool:
        at = self.capabilities.get(declared)
        return at is not None and time.monotonic() - at < REMEMBERED


def is_named(caller: Caller) -> bool:
    """Return True if a client is authenticated under a name of its own."""
    return caller.principal not in (ANONYMOUS, UNNAMED)
