"""Clients that are connected to a gateway, and the session of each with every server it uses."""

from collections.abc import Callable, Sequence

from msgspec import Raw

from ...interceptor import Interceptor, malformed_frame_hook
from ...peer import Peer
from ...peer.notification_pipeline import NotificationPipeline
from ...protocol.envelope import Direction
from ...protocol.identity.client_key import connection_key
from ...protocol.identity.principal import Principal
from ...relay.client_session import Front
from ...relay.notification_outbox import PeerOutbox
from ...relay.relayed_call import may_notify
from ...relay.upstream_connection import Link
from ...server.features.subscription_quota import HeldUris, SubscriptionQuota
from ...wire import Notification, RequestId

__all__ = ["ConnectedClient", "SingleServerClient"]


class ConnectedClient:
    """A client of the merged endpoint, on a connection that outlives its requests."""

    def __init__(
        self,
        principal: Principal,
        input_timeout: float,
        interceptors: Sequence[Interceptor] = (),
        quota: SubscriptionQuota | None = None,
    ) -> None:
        self.principal = principal
        self._quota = quota or SubscriptionQuota()
        self.peer: Peer  # set by `connect`: the peer is created with callbacks of this client
        self.introduction: Raw | None = None  # the params of its `initialize`
        self.level: str | None = None
        self.uris: dict[str, str] = {}  # its subscriptions, with the server that has the resource
        self.fronts: dict[object, Front] = {}  # by the relay that serves it
        self.incoming = NotificationPipeline(interceptors, Direction.CLIENT_TO_SERVER)
        # Notifications of the gateway itself; those of servers pass the interceptors upstream.
        self.outgoing = NotificationPipeline(interceptors, Direction.SERVER_TO_CLIENT)
        self.gone = False
        self._outbox: PeerOutbox
        self._input_timeout = input_timeout
        self._interceptors = interceptors

    def connect(self, peer: Peer) -> None:
        """Set the peer on the client's connection."""
        self.peer = peer
        peer.on_malformed = malformed_frame_hook(self._interceptors)
        self._outbox = PeerOutbox(peer)
        peer.on_extra_members = self._receive_extra_members

    def _receive_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        for front in self.fronts.values():
            front.members_came(request_id, members)  # only one has sent a request with that id

    def front(self, relay: object) -> Front:
        """Return its session with the server of a relay."""
        front = self.fronts.get(relay)
        if front is None:
            front = self._new_front()
            front.peer, front.outbox = self.peer, self._outbox
            front.introduction = self.introduction
            if not self.gone:
                self.fronts[relay] = front
        front.level = self.level
        return front

    def _new_front(self) -> Front:
        front = _MergedFront(self.principal, self._input_timeout, self._interceptors)
        front.uris = self._held()
        return front

    def _held(self) -> HeldUris:
        return self._quota.held(
            connection_key(self.principal, self.peer.channel.context, self.peer)
        )

    def close(self) -> None:
        """Drop what was not sent yet; the connection has ended."""
        self.gone = True
        self.incoming.close()
        self.outgoing.close()
        self._outbox.close()


class SingleServerClient(ConnectedClient):
    """A client of the endpoint of one server, which gets all notifications of that server.

    If the server has replicas, another one takes over its subscriptions.
    """

    def __init__(
        self,
        principal: Principal,
        input_timeout: float,
        interceptors: Sequence[Interceptor] = (),
        quota: SubscriptionQuota | None = None,
        permits: Callable[[str], bool] = lambda uri: True,
    ) -> None:
        """`permits` returns True for a URI of whose changes the client may be notified."""
        super().__init__(principal, input_timeout, interceptors, quota)
        self.watched: HeldUris
        self._permits = permits

    def connect(self, peer: Peer) -> None:
        super().connect(peer)
        self.watched = self._held()

    def _new_front(self) -> Front:
        front = _SingleServerFront(self.principal, self._input_timeout, self._interceptors)
        front.uris = self.watched
        front.permits = self._permits
        return front


class _SingleServerFront(Front):
    """A session that gets notifications only of resources in the client's view.

    A server may send more than the client has subscribed to.
    """

    permits: Callable[[str], bool]

    def tell(self, note: Notification, link: Link) -> None:
        if may_notify(note, self.permits):
            super().tell(note, link)


class _MergedFront(Front):
    """A session with one of several servers at the merged endpoint.

    The gateway itself notifies of changes, once its own lists have them.
    """

    def takes(self, note: Notification) -> bool:
        return not note.method.endswith(("/list_changed", "/updated"))

    def tell(self, note: Notification, link: Link) -> None:
        if self.takes(note):
            super().tell(note, link)
