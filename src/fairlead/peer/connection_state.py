"""What the parts of a peer share: the channel, the rules of its conversation, and its end."""

import asyncio
from typing import Any

from ..errors import ChannelClosed
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.envelope import Direction
from ..transport.channel import Channel
from .inbound_in_flight import InFlight

__all__ = ["FEW", "ConnectionState"]

FEW = 4  # with more than so many under way, it pays to write their messages together
LAST_WORDS = 1.5  # seconds that a channel may take to find out why it has ended


class ConnectionState:
    """One connection, as those see it who speak on it."""

    def __init__(self, channel: Channel, conversation: Conversation, work: InFlight) -> None:
        self.channel = channel
        self.conversation = conversation
        self.work = work  # requests of the peer that are under way
        self.loop = asyncio.get_running_loop()
        self.direction = (  # of what arrives
            Direction.CLIENT_TO_SERVER
            if conversation.role is ConversationRole.SERVER
            else Direction.SERVER_TO_CLIENT
        )
        self.owner: asyncio.Task[None] | None = None  # runs the channel
        self.open = False  # it has an owner, and is not over
        self.end: ChannelClosed | None = None  # why it is over

    def begin(self, owner: asyncio.Task[None]) -> None:
        self.owner = owner
        self.open = self.end is None

    def finish(self, end: ChannelClosed) -> None:
        self.end = end
        self.open = False
        self.conversation.closed()

    def send_quietly(self, message: Any) -> None:
        """Send something of which nobody needs to know whether it arrives."""
        try:
            self.channel.send(message)
        except ChannelClosed:
            pass  # the owner hears of it from the channel

    def not_connected_error(self) -> ChannelClosed:
        """What those hear who speak on a line that is not open."""
        error = ChannelClosed(delivered=False)
        if self.end is not None:
            error = ChannelClosed(
                self.end.reason,
                delivered=False,
                exit_code=self.end.exit_code,
                stderr=self.end.stderr,
                public=self.end.public,
            )
        error.args = (str(error.args[0]).replace("Transport closed", "Transport not connected", 1),)
        return error

    async def wait_for_close_reason(self, error: ChannelClosed) -> ChannelClosed:
        """Writing fails as soon as the other end is gone; why it went is known a moment later."""
        owner = self.owner
        # The owner waits for the tasks of requests: none of them may wait for it.
        own = (owner, *self.work.running.values())
        if owner is not None and asyncio.current_task() not in own:
            await asyncio.wait((owner,), timeout=LAST_WORDS)
        return error if self.end is None else self.not_connected_error()
