"""The same passage for relays and gateways, which hear from clients without a connection too."""

from ..interceptor import Exchange
from ..peer import passage
from ..protocol.caller import Caller, read_head
from ..protocol.envelope import TransportContext
from ..server.direct import DirectEdge
from ..wire import Notification

__all__ = ["Passage"]


class Passage(passage.Passage):
    """One connection's notifications in one direction, or those that come alone."""

    def put_alone(
        self,
        note: Notification,
        caller: Caller,
        context: TransportContext,
        deliver: passage.Deliver,
    ) -> None:
        """Let a notification through that came outside of any connection."""
        if not self._interceptors:
            deliver(note)
            return
        head = read_head(note.params)
        self.enter(
            Exchange(note, caller, head, self._direction, context, DirectEdge(caller.principal)),
            deliver,
        )
