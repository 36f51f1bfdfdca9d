"""One request of a client, while a server works on it."""

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
# The methods during which a server may ask back, in both eras.
ASKING: Final = frozenset(row.name for row in METHODS if row.asks)
# The methods for which a connection is opened; all others use one that is there, if they can.
WORK: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})


class ClientRounds(Protocol):
    """A stateless client that takes part in a call by coming back with further requests."""

    heard: bool  # whether one of its requests waits for the call now

    async def ask(self, exchange: Exchange) -> Raw:
        """Ask the client what the server asks, and wait until it comes back with the answer.

        Raises:
            RpcError: The client cannot be asked that.
        """
        ...


class CallSession(Protocol):
    """The session that a call came in, as far as the call is concerned."""

    outbox: PeerOutbox

    def wants_log(self, rank: int) -> bool:
        """Return True if a log message of this severity is for the session."""

    def takes(self, note: Notification) -> bool:
        """Return True if the session wants this notification from the server itself."""


class RelayedCall:
    """Where the news of one request goes."""

    __slots__ = ("_last", "exchange", "outbox", "parking", "rising", "sent_as", "session")

    def __init__(
        self, exchange: Exchange, session: CallSession | None, *, rising: bool = False
    ) -> None:
        """`rising`: progress only ever grows, also if the request is sent several times."""
        self.exchange = exchange
        self.session = session
        self.outbox: PeerOutbox | CallOutbox | None = None if session is None else session.outbox
        self.parking: ClientRounds | None = None
        self.rising = rising
        self.sent_as: RequestId | None = None  # to the server, the last time
        self._last = -inf

    @property
    def may_be_asked(self) -> bool:
        """Whether a question of the server may belong to it."""
        return self.exchange.message.method in ASKING and (
            self.parking is not None or self.session is not None
        )

    def tell(self, note: Notification) -> None:
        """Pass a notification on, on the stream of this request."""
        if self.parking is not None and not self.parking.heard:
            return  # nobody is there at the moment; the client comes back with its answers
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
        """The server says how far it is, under a token of ours."""
        token = self.exchange.progress_token
        if token is None:
            return
        if self.rising and not self._rises(note):
            return
        self.tell(with_progress_token(note, token))

    def wants_log(self, rank: int) -> bool:
        """Whether a log message of this severity is for whoever asked."""
        if self.session is not None and not self.exchange.caller.stateless:
            return self.session.wants_log(rank)
        level = self.exchange.caller.log_level
        return level is not None and (level not in LEVELS or rank >= LEVELS.index(level))

    async def flushed(self) -> None:
        """Wait until all that was told has been sent: an answer comes behind it."""
        if self.outbox is not None and not self.outbox.empty:
            await self.outbox.flushed()

    def moved_to(self, exchange: Exchange) -> None:
        """The client came back for it with another request."""
        self.exchange = exchange
        if self.session is None:
            self.outbox = None

    def _rises(self, note: Notification) -> bool:
        if isinstance(note.params, UnsetType):
            return True
        try:
            progress = msgspec.json.decode(note.params, type=_Progress).progress
        except (msgspec.DecodeError, RecursionError):
            return True
        if progress <= self._last:
            return False
        self._last = progress
        return True


def may_notify(note: Notification, permits: Callable[[str], bool]) -> bool:
    """Return False for news of a resource that a client must not hear of."""
    if note.method != _UPDATED:
        return True
    uri = read_params_head(note.params).uri
    return isinstance(uri, str) and permits(uri)


class _Progress(Struct):
    progress: float = 0.0
