"""A client of a gateway, and its standing with each server behind it."""

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

__all__ = ["Guest", "Visitor"]


class Visitor:
    """One client on a connection that outlives its requests."""

    def __init__(
        self,
        principal: Principal,
        input_timeout: float,
        interceptors: Sequence[Interceptor] = (),
        quota: SubscriptionQuota | None = None,
    ) -> None:
        self.principal = principal
        self._quota = quota or SubscriptionQuota()
        self.peer: Peer  # set right after, because the peer needs us first
        self.introduction: Raw | None = None  # the params of its `initialize`
        self.level: str | None = None
        self.uris: dict[str, str] = {}  # what it watches, and the server whose it is
        self.fronts: dict[object, Front] = {}  # by the relay that serves it
        self.passage = NotificationPipeline(interceptors, Direction.CLIENT_TO_SERVER)
        self.news = NotificationPipeline(
            interceptors, Direction.SERVER_TO_CLIENT
        )  # what we tell ourselves
        self.gone = False
        self._outbox: PeerOutbox
        self._input_timeout = input_timeout
        self._interceptors = interceptors

    def connect(self, peer: Peer) -> None:
        self.peer = peer
        peer.on_malformed = malformed_frame_hook(self._interceptors)
        self._outbox = PeerOutbox(peer)
        peer.on_extra_members = self._members_came

    def _members_came(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        for front in self.fronts.values():
            front.members_came(request_id, members)  # only one has asked under that id

    def front(self, relay: object) -> Front:
        """Its standing with one server."""
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
        self.gone = True
        self.passage.close()
        self.news.close()
        self._outbox.close()


class Guest(Visitor):
    """A client of one server alone, which hears everything from it. Should the server be one of
    several equal ones, the next one hears what this one was asked for."""

    def __init__(
        self,
        principal: Principal,
        input_timeout: float,
        interceptors: Sequence[Interceptor] = (),
        quota: SubscriptionQuota | None = None,
        permits: Callable[[str], bool] = lambda uri: True,
    ) -> None:
        """`permits` tells the resources of whose changes it may hear."""
        super().__init__(principal, input_timeout, interceptors, quota)
        self.watched: HeldUris
        self._permits = permits

    def connect(self, peer: Peer) -> None:
        super().connect(peer)
        self.watched = self._held()

    def _new_front(self) -> Front:
        front = _GuestFront(self.principal, self._input_timeout, self._interceptors)
        front.uris = self.watched
        front.permits = self._permits
        return front


class _GuestFront(Front):
    """One server by itself, as far as the view of its client goes: a server may tell of more than
    the client has subscribed to."""

    permits: Callable[[str], bool]

    def tell(self, note: Notification, link: Link) -> None:
        if may_notify(note, self.permits):
            super().tell(note, link)


class _MergedFront(Front):
    """One of several servers behind one endpoint. Changes are told by the gateway, once its own
    lists have them."""

    def takes(self, note: Notification) -> bool:
        return not note.method.endswith(("/list_changed", "/updated"))

    def tell(self, note: Notification, link: Link) -> None:
        if self.takes(note):
            super().tell(note, link)
