"""Exits of second processes during their start, which show whether a server can run twice."""

from ...protocol.caller import Caller
from .connection_key import normal_capabilities

__all__ = ["StartExits"]


class StartExits:
    """The capabilities with which a second process of a server has exited during its start.

    A process may exit because of the capabilities of one kind of client. The server counts as
    unable to run twice only if a process also exits for another kind, or without capabilities.
    """

    def __init__(self) -> None:
        self.has_run_twice = False  # True once a second process has run beside the first one
        self.capabilities: set[bytes] = set()  # in their normal form

    def second_opened(self) -> None:
        """Forget all exits, because a second process can run."""
        self.has_run_twice = True
        self.capabilities.clear()

    def count(self, caller: Caller) -> bool:
        """Count an exit; return True if the exits show that the server cannot run twice."""
        declared = normal_capabilities(caller.capabilities)
        self.capabilities.add(declared)
        return declared == b"{}" or len(self.capabilities) > 1

    def concern(self, caller: Caller) -> bool:
        """Return True if a process has exited for clients with the same capabilities."""
        return normal_capabilities(caller.capabilities) in self.capabilities
