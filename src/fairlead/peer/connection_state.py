"""State shared by the components of a peer: channel, conversation, requests, close reason."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from ..errors import ChannelClosed
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.envelope import Direction
from ..transport.channel import Channel
from ..wire import RequestId

__all__ = ["FEW", "SHOWN_LINES", "ConnectionState", "DelegatedRequest", "InFlight", "copy_of"]

LATE = 1.0  # seconds by which the timer of a request may be late
SHOWN_LINES = 5  # invalid lines that are kept for error messages


class DelegatedRequest(Protocol):
    """A request that is answered without a task of this peer."""

    def cancel(self, reason: str) -> None:
        """Cancel the request, because its response is no longer needed."""


class InFlight:
    """The requests of the peer in progress.

    The tables are the same objects for the lifetime of the connection, because other objects hold
    references to them.
    """

    def __init__(self, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.most = most  # maximum number of concurrent requests
        self.running: dict[RequestId, asyncio.Task[None]] = {}
        # tasks of cancelled requests that still clean up
        self.leaving: set[asyncio.Task[None]] = set()
        self.taken: dict[RequestId, DelegatedRequest] = {}
        # running tasks of requests that only listen for changes
        self.lasting: set[asyncio.Task[None]] = set()
        # resolved when the last delegated request has ended; None if no task waits for that
        self.awaited: asyncio.Future[None] | None = None

    def mark_long_lived(self, task: asyncio.Task[None]) -> None:
        """Mark the task of a long-lived request, such as `subscriptions/listen`."""
        self.lasting.add(task)
        task.add_done_callback(self.lasting.discard)

    def everything(self) -> set[object]:
        return {*self.running.values(), *self.taken.values(), *self.leaving}

    def has_task(self, task: asyncio.Task[Any] | None) -> bool:
        """Return True if this task handles a request of the peer, even a cancelled request."""
        return task in self.leaving or task in self.running.values()

    def cancel_tasks(self, current: asyncio.Task[Any] | None) -> None:
        """Cancel each task except the current task, but only once.

        A second cancellation would interrupt the clean-up of a task.
        """
        for task in (*self.running.values(), *self.leaving):
            if task is not current and not task.cancelling():
                task.cancel()

    async def finish(self, seconds: float) -> None:
        """Wait up to `seconds` until all requests are complete."""
        deadline = self._loop.time() + seconds
        while (left := deadline - self._loop.time()) > 0:
            # A task that was cancelled before its first step is done, but still in the table.
            working = {t for t in (*self.running.values(), *self.leaving) if not t.done()}
            if not working and not self.taken:
                return
            if self.taken:
                # Several tasks may wait: a drain, and the end of the connection.
                if self.awaited is None or self.awaited.done():
                    self.awaited = self._loop.create_future()
                await asyncio.wait({*working, self.awaited}, timeout=left)
            else:
                await asyncio.wait(working, timeout=left)

    def notify_idle_waiter(self) -> None:
        """Wake the task in `finish` after the last delegated request has ended."""
        awaited = self.awaited
        if awaited is not None and not self.taken and not awaited.done():
            awaited.set_result(None)


# With more requests in progress than this, it is faster to send several messages in one write.
FEW = 4
LAST_WORDS = 1.5  # seconds that a channel may take to determine why it has ended


class ConnectionState:
    """State of one connection, which all components of a `Peer` share."""

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
        self.peer_name = ""  # name of the peer in log lines, if the program has a name for it
        self.owner: asyncio.Task[None] | None = None  # the task that runs the channel
        self.open = False  # True from `begin` to the end of the connection
        self.end: ChannelClosed | None = None  # why the connection ended
        self._output: tuple[tuple[float, str], ...] = ()  # times and lines, see `add_output`

    def begin(self, owner: asyncio.Task[None]) -> None:
        self.owner = owner
        self.open = self.end is None

    def finish(self, end: ChannelClosed) -> None:
        """Record why the connection ended, with the last output of a server that exited."""
        self.end = end
        if self._output and end.exit_code is not None:
            self.end = copy_of(end, [line for _, line in self._output])
            self.end.__cause__ = end.__cause__
        self.open = False
        self.conversation.closed()

    def add_output(self, line: str) -> None:
        """Keep a line that a server wrote instead of a message, for error messages."""
        self._output = (*self._output, (self.loop.time(), line))[-SHOWN_LINES:]

    def output_within(self, seconds: float) -> tuple[str, ...]:
        """Return the last lines that the server wrote instead of messages in the last seconds."""
        since = self.loop.time() - seconds - LATE
        return tuple(line for written, line in self._output if written >= since)

    def send_quietly(self, message: Any) -> None:
        """Send a message and ignore a closed channel."""
        try:
            self.channel.send(message)
        except ChannelClosed:
            pass  # the channel reports its end to the owner task

    def not_connected_error(self) -> ChannelClosed:
        """Return the error for sending on a connection that is not open."""
        error = copy_of(self.end or ChannelClosed())
        error.delivered = False
        error.args = (str(error.args[0]).replace("Transport closed", "Transport not connected", 1),)
        return error

    async def wait_for_close_reason(self, error: ChannelClosed) -> ChannelClosed:
        """Return the reason why the connection ended, after a write has failed.

        A write fails as soon as the other end has closed; the channel determines the reason a
        moment later.
        """
        owner = self.owner
        # The owner waits for the tasks of requests, so none of them may wait for the owner.
        own = (owner, *self.work.running.values())
        if owner is not None and asyncio.current_task() not in own:
            await asyncio.wait((owner,), timeout=LAST_WORDS)
        return error if self.end is None else self.not_connected_error()


def copy_of(end: ChannelClosed, output: Sequence[str] = ()) -> ChannelClosed:
    """Return a new error for the same end of a connection, with the output of the server.

    An error that was raised must not be shared, because it keeps the frames of its caller alive.
    """
    return ChannelClosed(
        end.reason,
        delivered=end.delivered,
        exit_code=end.exit_code,
        stderr=end.stderr,
        output=end.output or output,
        public=end.public,
    )
