"""A client's connection to us: what it has asked for, and the way to it."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from msgspec import Raw, UnsetType

from ..errors import RpcError
from ..interceptor import Answer, Exchange, Interceptor, extra_members_hook, malformed_frame_hook
from ..peer import Peer
from ..peer.notification_pipeline import NotificationPipeline
from ..protocol.downgrade.downgrade_error import DowngradeError
from ..protocol.downgrade.params import downgrade_params
from ..protocol.envelope import Direction, SessionState
from ..protocol.identity.principal import Principal
from ..protocol.revisions import Revision
from ..server.context.context import LOG_LEVELS as LEVELS
from ..upstream.connection.notification_outbox import PeerOutbox
from ..upstream.connection.relayed_params import RelayedParams, with_progress_token
from ..upstream.connection.upstream_connection import UpstreamConnection
from ..wire import Notification, RequestId
from ..wire.error_codes import METHOD_NOT_FOUND

__all__ = ["ClientSession"]

log = logging.getLogger("fairlead.gateway")

_LIST_CHANGED: Final = Notification("notifications/tools/list_changed")


class ClientSession:
    """One client, of either era, on a connection that outlives its requests."""

    def __init__(
        self,
        principal: Principal,
        input_timeout: float,
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        self.principal = principal
        self.peer: Peer  # set right after, because the peer needs us first
        self.outbox: PeerOutbox
        self.connection: UpstreamConnection | None = (
            None  # handshake era: the connection that serves it
        )
        self.introduction: Raw | None = None  # the params of its `initialize`
        self.level: str | None = None  # handshake era: what it wants to have logged
        self.uris: set[str]  # handshake era: the resources it watches; set with its connection
        self.asked = 0  # questions of servers that it has not answered
        self.opening = asyncio.Lock()  # of a connection in place of one that was lost
        self.joining = 0  # requests that wait for that; the next ones wait behind them
        self.passage = NotificationPipeline(interceptors, Direction.CLIENT_TO_SERVER)
        self._questions: dict[RequestId, Exchange] = {}  # of servers, by the ids we gave them
        self._input_timeout = input_timeout
        self._interceptors = interceptors
        self._beside = extra_members_hook(interceptors)

    restores_default = True  # its requests are repeated on a default connection that is replaced

    def lost(self) -> None:
        """Take note that the connection to the server was lost."""

    def attached(self) -> None:
        """Take note of a new connection to the server, on which everything was restored."""

    def detach(self) -> None:
        """Forget the connection to the server; the next request gets another one."""
        self.connection = None

    def connect(self, peer: Peer) -> None:
        self.peer = peer
        peer.on_malformed = malformed_frame_hook(self._interceptors)
        self.outbox = PeerOutbox(peer)
        peer.on_extra_members = self.members_came

    @property
    def revision(self) -> Revision | None:
        caller = self.peer.conversation.peer
        return None if caller is None else caller.revision

    def wants_log(self, rank: int) -> bool:
        """Whether to pass a log message of this severity on; who set no level gets all."""
        return self.level not in LEVELS or rank >= LEVELS.index(self.level)

    @property
    def listens(self) -> bool:
        """Whether it wants notifications of changed lists from the server itself."""
        return self.takes(_LIST_CHANGED)

    def takes(self, note: Notification) -> bool:
        """Whether it wants to hear of this from the server itself."""
        return True

    def tell(self, note: Notification) -> None:
        """Send a notification of the server, in the form that the client's revision has."""
        if self.peer.conversation.state is not SessionState.ACTIVE:
            return
        revision = self.revision
        if revision is not None and not isinstance(note.params, UnsetType):
            params = downgrade_params(note.method, note.params, revision)
            if params is not note.params:
                note = Notification(note.method, params, note.extra)
        self.outbox.put(note)

    async def ask(
        self, exchange: Exchange, server: PeerOutbox, reply_to: RequestId | None = None
    ) -> Answer:
        """Forward a request of the server to the client and return its result.

        Progress of the client goes to `server`. `reply_to` is the client's own request that the
        server asks about, where that is known.

        Raises:
            RpcError: The client refused the request, or its revision does not have it.
        """
        params, revision = exchange.message.params, self.revision
        if revision is not None and not isinstance(params, UnsetType):
            try:
                params = downgrade_params(exchange.method, params, revision)
            except DowngradeError as exc:
                raise RpcError(METHOD_NOT_FOUND, str(exc), {"source": "proxy"}) from exc
        passing = RelayedParams(params)
        token = exchange.progress_token

        def passed(note: Notification) -> None:
            if token is not None:
                server.put(with_progress_token(note, token))

        def progressed(note: Notification) -> None:
            self.passage.put(note, self.peer, passed)

        def sent(request_id: RequestId) -> None:
            self._questions[request_id] = exchange
            asked_as.append(request_id)

        asked_as: list[RequestId] = []

        self.asked += 1
        try:
            answer = await self.peer.forward(
                exchange.method,
                passing.fill,
                extra=exchange.message.extra,
                timeout=self._input_timeout,
                max_total=self._input_timeout * 6,
                overhear=progressed if passing.tracked else None,
                on_sent=sent,
                reply_to=reply_to,
            )
            await self.passage.passed()
            return answer
        finally:
            self.asked -= 1
            for request_id in asked_as:
                self._questions.pop(request_id, None)

    def members_came(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """The client's answer has more to it than a result; the server gets that as well."""
        question = self._questions.get(request_id)
        if question is not None:
            if self._beside is not None:
                members = self._beside(question, members)
            question.edge.add_extra_members(question.request_id, members)
