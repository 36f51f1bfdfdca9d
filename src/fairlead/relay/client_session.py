"""The session of a client: its connection to the server, log level and subscriptions."""

import asyncio
import itertools
import logging
from collections.abc import Sequence
from typing import Final

from msgspec import Raw, UnsetType

from ..errors import RpcError
from ..interceptor import Answer, Exchange, Interceptor, extra_members_hook, malformed_frame_hook
from ..peer import Peer
from ..peer.notification_pipeline import NotificationPipeline
from ..protocol.caller import LOG_LEVELS as LEVELS
from ..protocol.caller import Principal
from ..protocol.downgrade.downgrade_error import DowngradeError
from ..protocol.downgrade.params import downgrade_params
from ..protocol.envelope import Direction, SessionState
from ..protocol.revisions import Revision
from ..upstream.connection.notification_outbox import PeerOutbox
from ..upstream.connection.relayed_call import RelayedParams, with_progress_token
from ..upstream.connection.upstream_connection import UpstreamConnection
from ..wire import Notification, RequestId
from ..wire.error_codes import METHOD_NOT_FOUND

__all__ = ["ClientSession"]

log = logging.getLogger("fairlead.gateway")

_numbers = itertools.count(1)

_LIST_CHANGED: Final = Notification("notifications/tools/list_changed")


class ClientSession:
    """Session of one client of either era, on a connection that serves several requests."""

    def __init__(
        self,
        principal: Principal,
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        self.principal = principal
        self.number = next(_numbers)
        # Set by `connect`: the peer's callbacks refer to this session, so it must exist first.
        self.peer: Peer
        self.outbox: PeerOutbox
        # Set only for clients of the handshake era. The server may have either era.
        self.connection: UpstreamConnection | None = None
        self.introduction: Raw | None = None  # the params of the client's `initialize`
        self.level: str | None = None  # handshake era: the log level that the client has set
        self.uris: set[str]  # handshake era: the subscribed resources; set by `Relay.attach`
        self.asked = 0  # requests of servers that the client has not answered yet
        # Held while a lost connection is replaced, so that concurrent requests open one connection.
        self.opening = asyncio.Lock()
        # Number of requests that wait for the lock.
        # If there are any, later requests also wait, so that requests stay in order.
        self.joining = 0
        self.passage = NotificationPipeline(interceptors, Direction.CLIENT_TO_SERVER)
        # requests of servers, by the ids sent to the client
        self._questions: dict[RequestId, Exchange] = {}
        self._interceptors = interceptors
        self._beside = extra_members_hook(interceptors)

    # Subscriptions and log level are repeated when the default connection is replaced.
    restores_default = True

    def lost(self) -> None:
        """Handle the loss of the connection to the server. Subclasses override this."""

    def attached(self) -> None:
        """Handle a new connection to the server. Subclasses override this.

        All subscriptions and the log level have been restored on the new connection.
        """

    def detach(self) -> None:
        """Forget the connection to the server; the next request opens another connection."""
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
        """Return True if a log message of this severity is forwarded to the client.

        A client that has not set a level receives all messages.
        """
        return self.level not in LEVELS or rank >= LEVELS.index(self.level)

    @property
    def listens(self) -> bool:
        """Return True if the server's own `list_changed` notifications are sent to the client."""
        return self.takes(_LIST_CHANGED)

    def takes(self, note: Notification) -> bool:
        """Return True if this notification of the server is sent to the client."""
        return True

    def tell(self, note: Notification) -> None:
        """Send a notification of the server, adapted to the revision of the client."""
        # A client does not expect notifications before the handshake is complete.
        if self.peer.conversation.state is not SessionState.ACTIVE:
            return
        revision = self.revision
        if revision is not None and not isinstance(note.params, UnsetType):
            params = downgrade_params(note.method, note.params, revision)
            if params is not note.params:
                note = Notification(note.method, params, note.extra)
        self.outbox.put(note)

    async def ask(
        self, exchange: Exchange, server: PeerOutbox, timeout: float, reply_to: RequestId | None
    ) -> Answer:
        """Forward a request of the server to the client and return its result.

        Progress notifications of the client are sent to `server` and extend the `timeout`.
        `reply_to` is the id of the client's request during which the server sent this one, if
        known.

        Raises:
            RpcError: The client refused the request, or its revision does not support it.
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
            answer = await self.peer.outbound.forward(
                exchange.method,
                passing.fill,
                extra=exchange.message.extra,
                timeout=timeout,
                max_total=timeout * 6,
                overhear=progressed if passing.tracked else None,
                on_sent=sent,
                reply_to=reply_to,
            )
            # The server must receive progress notifications before the result.
            await self.passage.passed()
            return answer
        finally:
            self.asked -= 1
            for request_id in asked_as:
                self._questions.pop(request_id, None)

    def members_came(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Forward unknown members of the client's response to the server."""
        question = self._questions.get(request_id)
        if question is not None:
            if self._beside is not None:
                members = self._beside(question, members)
            question.edge.add_extra_members(question.request_id, members)
