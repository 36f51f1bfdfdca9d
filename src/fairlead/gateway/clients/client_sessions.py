"""Clients that are connected to a gateway, and their sessions with servers."""

from collections.abc import Callable, Sequence

from msgspec import Raw

from ...interceptor import Interceptor, malformed_frame_hook
from ...peer import Peer
from ...peer.notification_pipeline import NotificationPipeline
from ...protocol.caller import Principal
from ...protocol.envelope import Direction
from ...protocol.identity.client_key import connection_key
from ...relay.client_session import ClientSession
from ...server.features.subscription_quota import HeldUris, SubscriptionQuota
from ...upstream.connection.notification_outbox import PeerOutbox
from ...upstream.connection.relayed_call import may_notify
from ...wire import Notification, RequestId

__all__ = ["ConnectedClient", "SingleServerClient"]


class ConnectedClient:
    """A client of the merged endpoint whose connection outlives its requests."""

    def __init__(self, principal: Principal, interceptors: Sequence[Interceptor] = ()) -> None:
        self.principal = principal
        self.peer: Peer  # set by `connect`, because the peer needs callbacks of this client
        self.introduction: Raw | None = None  # params of its `initialize`
        self.level: str | None = None
        self.uris: dict[str, str] = {}  # subscriptions: the server of each resource
        self.sessions: dict[object, ClientSession] = {}  # sessions with servers, by relay
        self.incoming = NotificationPipeline(interceptors, Direction.CLIENT_TO_SERVER)
        # For the gateway's own notifications; those of servers pass the interceptors earlier.
        self.outgoing = NotificationPipeline(interceptors, Direction.SERVER_TO_CLIENT)
        self.on_attached: Callable[[ClientSession], None] = lambda session: None
        self.on_lost: Callable[[ClientSession], None] = lambda session: None
        self.gone = False
        self._outbox: PeerOutbox
        self._interceptors = interceptors

    def connect(self, peer: Peer) -> None:
        """Set the peer of the client's connection."""
        self.peer = peer
        peer.on_malformed = malformed_frame_hook(self._interceptors)
        self._outbox = PeerOutbox(peer)
        peer.on_extra_members = self._receive_extra_members

    def _receive_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        for session in self.sessions.values():
            # The members are passed to every session, but only one has sent a request with that id.
            session.members_came(request_id, members)

    def session_with(self, relay: object) -> ClientSession:
        """Return the client's session with the server of a relay."""
        session = self.sessions.get(relay)
        if session is None:
            session = self._new_session()
            session.peer, session.outbox = self.peer, self._outbox
            session.introduction = self.introduction
            # Not registered after the client has disconnected, because it would never be removed.
            if not self.gone:
                self.sessions[relay] = session
        session.level = self.level
        return session

    def _new_session(self) -> ClientSession:
        session = _MergedSession(self.principal, self._interceptors)
        # A plain set without a quota: subscriptions were counted when the client requested them.
        session.uris = set()
        session.on_attached = lambda: self.on_attached(session)
        session.on_lost = lambda: self.on_lost(session)
        return session

    def close(self) -> None:
        """Drop unsent messages after the connection has ended."""
        self.gone = True
        self.incoming.close()
        self.outgoing.close()
        self._outbox.close()


class SingleServerClient(ConnectedClient):
    """A client of the endpoint of one server, which gets all notifications of that server.

    Its subscriptions are shared by its sessions with all replicas.
    """

    def __init__(
        self,
        principal: Principal,
        interceptors: Sequence[Interceptor] = (),
        quota: SubscriptionQuota | None = None,
        permits: Callable[[str], bool] = lambda uri: True,
    ) -> None:
        """`permits` returns True for URIs of which the client may be notified."""
        super().__init__(principal, interceptors)
        self._quota = quota or SubscriptionQuota()
        self.watched: HeldUris
        self._permits = permits

    def connect(self, peer: Peer) -> None:
        super().connect(peer)
        self.watched = self._quota.held(connection_key(self.principal, peer.channel.context, peer))

    def _new_session(self) -> ClientSession:
        session = _SingleServerSession(self.principal, self._interceptors)
        session.uris = self.watched
        session.permits = self._permits
        return session


class _SingleServerSession(ClientSession):
    """A session that receives notifications only of resources in the client's view.

    A server may send notifications that the client has not subscribed to.
    """

    permits: Callable[[str], bool]

    def tell(self, note: Notification) -> None:
        if may_notify(note, self.permits):
            super().tell(note)


class _MergedSession(ClientSession):
    """A session with one of several servers at the merged endpoint.

    Changes of lists and resources are not forwarded, because the gateway itself sends such
    notifications, after its lists contain the change.
    """

    on_attached: Callable[[], None]
    on_lost: Callable[[], None]
    # On the default connection, the gateway restores the subscriptions of all clients.
    restores_default = False

    def attached(self) -> None:
        self.on_attached()

    def lost(self) -> None:
        self.on_lost()

    def takes(self, note: Notification) -> bool:
        return not note.method.endswith(("/list_changed", "/updated"))

    def tell(self, note: Notification) -> None:
        if self.takes(note):
            super().tell(note)
