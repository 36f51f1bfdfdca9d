"""A client's connection to us: what it has asked for, and the way to it."""

import logging
from typing import TYPE_CHECKING

from msgspec import Raw, UnsetType

from ..errors import RpcError
from ..interceptor import Answer, Exchange
from ..peer import Peer
from ..protocol.downgrade import Impossible, downgrade_params
from ..protocol.envelope import SessionState
from ..protocol.revisions import Revision
from ..wire import Notification
from ..wire.codes import METHOD_NOT_FOUND
from .call import LEVELS, Call
from .outbox import PeerOutbox
from .params import Passing, retokened

if TYPE_CHECKING:
    from .link import Link

__all__ = ["Front"]

log = logging.getLogger("fairlead.gateway")


class Front:
    """One client, of either era, on a connection that outlives its requests."""

    def __init__(self, principal: str | None, input_timeout: float) -> None:
        self.principal = principal
        self.peer: Peer  # set right after, because the peer needs us first
        self.outbox: PeerOutbox
        self.link: Link | None = None  # handshake era: the connection that serves it
        self.introduction: Raw | None = None  # the params of its `initialize`
        self.level: str | None = None  # handshake era: what it wants to have logged
        self.uris: set[str] = set()  # handshake era: the resources it watches
        self._input_timeout = input_timeout

    def connect(self, peer: Peer) -> None:
        self.peer = peer
        self.outbox = PeerOutbox(peer)

    @property
    def revision(self) -> Revision | None:
        caller = self.peer.conversation.peer
        return None if caller is None else caller.revision

    def wants_log(self, rank: int) -> bool:
        """Whether to pass a log message of this severity on; who set no level gets all."""
        return self.level not in LEVELS or rank >= LEVELS.index(self.level)

    def tell(self, note: Notification, link: "Link") -> None:
        """Pass on what the server told, in the words of the client's revision."""
        if self.peer.conversation.state is not SessionState.ACTIVE:
            return
        revision = self.revision
        if revision is not None and not isinstance(note.params, UnsetType):
            params = downgrade_params(note.method, note.params, revision)
            if params is not note.params:
                note = Notification(note.method, params, note.extra)
        self.outbox.put(note)

    async def ask(self, exchange: Exchange, call: Call | None, link: "Link") -> Answer:
        """Ask the client what the server asks; its answer is the answer.

        Raises:
            RpcError: the client said no, or cannot be asked that.
        """
        params, revision = exchange.message.params, self.revision
        if revision is not None and not isinstance(params, UnsetType):
            try:
                params = downgrade_params(exchange.method, params, revision)
            except Impossible as exc:
                raise RpcError(METHOD_NOT_FOUND, str(exc), {"source": "proxy"}) from exc
        passing = Passing(params)
        token = exchange.progress_token

        def progressed(note: Notification) -> None:
            if token is not None:
                link.outbox.put(retokened(note, token))

        return await self.peer.forward(
            exchange.method,
            passing.fill,
            extra=exchange.message.extra,
            timeout=self._input_timeout,
            max_total=self._input_timeout * 6,
            overhear=progressed if passing.tracked else None,
            reply_to=None if call is None else call.exchange.request_id,
        )
