"""State shared by the parts of a peer: channel, conversation, work in progress and end."""

import asyncio
from typing import Any

from ..errors import ChannelClosed
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.envelope import Direction
from ..transport.channel import Channel
from .inbound_in_flight import InFlight

__all__ = ["FEW", "ConnectionState", "copy_of"]

# With more requests in progress than this, it is faster to send several messages in one write.
FEW = 4
LAST_WORDS = 1.5  # seconds that a channel may take to determine why it has ended


class ConnectionState:
    """State of one connection, which all parts of a `Peer` share."""

    def __init__(self, channel: Channel, conversation: Conversation, work: InFlight) -> None:
        self.channel = channel
        self.conversation = conversation
        self.work = work  # requests of the peer in progress
        self.loop = asyncio.get_running_loop()
        self.direction = (  # direction of inbound messages
            Direction.CLIENT_TO_SERVER
            if conversation.role is ConversationRole.SERVER
            else Direction.SERVER_TO_CLIENT
        )
        self.owner: asyncio.Task[None] | None = None  # the task that runs the channel
        self.open = False  # True from `begin` to the end of the connection
        self.end: ChannelClosed | None = None  # why the connection ended

    def begin(self, owner: asyncio.Task[None]) -> None:
        self.owner = owner
        self.open = self.end is None

    def finish(self, end: ChannelClosed) -> None:
        self.end = end
        self.open = False
        self.conversation.closed()

    def send_quietly(self, message: Any) -> None:
        """Send a message and ignore a closed channel."""
        try:
            self.channel.send(message)
        except ChannelClosed:
            pass  # the owner task learns of it from the channel

    def not_connected_error(self) -> ChannelClosed:
        """Return the error for sending on a connection that is not open."""
        error = copy_of(self.end or ChannelClosed())
        error.delivered = False
        error.args = (str(error.args[0]).replace("Transport closed", "Transport not connected", 1),)
        return error

    async def wait_for_close_reason(self, error: ChannelClosed) -> ChannelClosed:
        """Return the reason why the connection ended, after a write has failed.

        A write fails as soon as the other end is gone; the channel learns the reason a moment
        later.
        """
        owner = self.owner
        # The owner waits for the tasks of requests, so none of them may wait for the owner.
        own = (owner, *self.work.running.values())
        if owner is not None and asyncio.current_task() not in own:
            await asyncio.wait((owner,), timeout=LAST_WORDS)
        return error if self.end is None else self.not_connected_error()


def copy_of(end: ChannelClosed) -> ChannelClosed:
    """Return a new error for the same end of a connection.

    An error that was raised must not be shared, because it keeps the frames of its caller alive.
    """
    return ChannelClosed(
        end.reason,
        delivered=end.delivered,
        exit_code=end.exit_code,
        stderr=end.stderr,
        public=end.public,
    )
