"""A request of a client while a server processes it."""

from collections.abc import Callable
from math import inf
from typing import Final, Protocol

import msgspec
from msgspec import Raw, Struct, UnsetType

from ...interceptor import Exchange
from ...protocol.caller import read_params_head
from ...protocol.downgrade.params import downgrade_params
from ...protocol.methods import METHODS
from ...server.context.context import LOG_LEVELS as LEVELS
from ...wire import Notification, RequestId
from .notification_outbox import CallOutbox, PeerOutbox
from .relayed_params import with_progress_token

__all__ = ["ASKING", "LEVELS", "WORK", "CallSession", "ClientRounds", "RelayedCall", "may_notify"]

_UPDATED: Final = "notifications/resources/updated"
# Methods during which a server may send requests to the client, in both eras.
ASKING: Final = frozenset(row.name for row in METHODS if row.asks)
# Methods for which a connection is opened; others use an open connection if there is one.
WORK: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})


class ClientRounds(Protocol):
    """A stateless client that takes part in a call by sending further requests."""

    heard: bool  # True while a request of the client waits for the call

    async def ask(self, exchange: Exchange) -> Raw:
        """Forward a question of the server, and wait for the request that contains the answer.

        Raises:
            RpcError: The client cannot answer this kind of question.
        """
        ...


class CallSession(Protocol):
    """The part of a client session that a call uses."""

    outbox: PeerOutbox

    def wants_log(self, rank: int) -> bool:
        """Return True if the session wants log messages of this severity."""

    def takes(self, note: Notification) -> bool:
        """Return True if the session accepts this notification of the server."""


class RelayedCall:
    """A request of a client, and the destination of its notifications."""

    __slots__ = ("_last", "exchange", "outbox", "parking", "rising", "sent_as", "session")

    def __init__(
        self, exchange: Exchange, session: CallSession | None, *, rising: bool = False
    ) -> None:
        """`rising` drops progress that does not increase, as after a repeated request."""
        self.exchange = exchange
        self.session = session
        self.outbox: PeerOutbox | CallOutbox | None = None if session is None else session.outbox
        self.parking: ClientRounds | None = None
        self.rising = rising
        self.sent_as: RequestId | None = None  # id of the last request to the server
        self._last = -inf

    @property
    def may_be_asked(self) -> bool:
        """True if a question of the server may belong to this call."""
        return self.exchange.message.method in ASKING and (
            self.parking is not None or self.session is not None
        )

    def tell(self, note: Notification) -> None:
        """Forward a notification on the stream of this request."""
        if self.parking is not None and not self.parking.heard:
            return  # The client has no open request now. It will send one with its responses.
        if self.outbox is None:
            self.outbox = CallOutbox(self.exchange)
        exchange = self.exchange
        if exchange.permits is not None and not may_notify(note, exchange.permits):
            return
        if not exchange.caller.stateless and not isinstance(note.params, UnsetType):
            params = downgrade_params(note.method, note.params, exchange.caller.revision)
            if params is not note.params:
                note = Notification(note.method, params, note.extra)
        self.outbox.put(note, exchange.request_id)

    def progressed(self, note: Notification) -> None:
        """Forward a progress notification under the client's own token."""
        token = self.exchange.progress_token
        if token is None:
            return
        if self.rising and not self._rises(note):
            return
        self.tell(with_progress_token(note, token))

    def wants_log(self, rank: int) -> bool:
        """Return True if the caller wants log messages of this severity."""
        if self.session is not None and not self.exchange.caller.stateless:
            return self.session.wants_log(rank)
        level = self.exchange.caller.log_level
        # An unknown level excludes no messages.
        return level is not None and (level not in LEVELS or rank >= LEVELS.index(level))

    async def flushed(self) -> None:
        """Wait until all notifications have been sent: the response must not overtake them."""
        if self.outbox is not None and self.outbox.busy:
            await self.outbox.flushed()

    def moved_to(self, exchange: Exchange) -> None:
        """Continue the call with another request of the client."""
        self.exchange = exchange
        # Without a session, the outbox belongs to the previous request.
        if self.session is None:
            self.outbox = None

    def _rises(self, note: Notification) -> bool:
        if isinstance(note.params, UnsetType):
            return True
        try:
            progress = msgspec.json.decode(note.params, type=_Progress).progress
        except (msgspec.DecodeError, RecursionError):
            # Progress that cannot be read is forwarded as it is.
            return True
        if progress <= self._last:
            return False
        self._last = progress
        return True


def may_notify(note: Notification, permits: Callable[[str], bool]) -> bool:
    """Return False for an update of a resource that `permits` excludes."""
    if note.method != _UPDATED:
        return True
    uri = read_params_head(note.params).uri
    return isinstance(uri, str) and permits(uri)


class _Progress(Struct):
    progress: float = 0.0
