"""Events of a gateway's servers: status changes, notifications, and changed lists."""

from collections.abc import Callable, Container
from functools import partial
from typing import Any, Final

from msgspec import Struct

from ...protocol.caller import read_params_head
from ...protocol.targets.list_kind import ListKind
from ...server.features.change_broadcaster import UPDATED, ChangeBroadcaster
from ...transport.background_tasks import BackgroundTasks
from ...upstream.connection.upstream_connection import UpstreamConnection
from ...upstream.status_events import StatusEvent
from ...upstream.upstream import Upstream
from ...wire import Notification
from ..catalog.list_comparison import ListComparison
from ..clients.upstream_subscriptions import UpstreamSubscriptions, log_failure
from ..operations.notification_log import NotificationLog
from .registry import BackendRegistry

__all__ = ["LIST_CHANGED", "UpstreamEvents"]

LIST_CHANGED: Final = {
    ListKind.TOOLS: "notifications/tools/list_changed",
    ListKind.PROMPTS: "notifications/prompts/list_changed",
    ListKind.RESOURCES: "notifications/resources/list_changed",
    # The specification defines one notification for resources and templates.
    ListKind.TEMPLATES: "notifications/resources/list_changed",
}


class UpstreamEvents(Struct, eq=False):
    """Receiver of the events of upstreams, which updates members and notifies clients.

    `audience_of` returns the connections that may see a server; None means all.
    """

    registry: BackendRegistry
    subscriptions: UpstreamSubscriptions
    changes: ChangeBroadcaster
    notifications: NotificationLog
    tasks: BackgroundTasks
    comparison: ListComparison
    audience_of: Callable[[str], Container[object] | None]

    def status_changed(self, event: StatusEvent) -> None:
        """Apply a status event of an upstream."""
        for name in event.names:
            member = self.registry.owner(name)
            if member is None:
                continue
            for relay in member.replicas:
                if event.kind == "connected" and relay.name == name:
                    self.tasks.start(log_failure(relay.readopt_sessions()))
            if event.kind == "connecting":
                member.begins()
            elif event.kind == "connected":
                member.replicas.connected()
                self.subscriptions.connected(member, name)
                # The server could not announce changes while it was disconnected.
                for uri in self.subscriptions.uris(member):
                    self.changes.changed(UPDATED, uri)
            elif event.kind == "failed":
                member.failed()

    def upstream_changed(self, upstream: Upstream) -> None:
        """Apply a new state or list of a server."""
        member = self.registry.owner(upstream.name)
        if member is not None:
            member.update(upstream)

    def notification_received(self, server: str, method: str, params: dict[str, Any]) -> None:
        """Log a notification of a server, and notify clients that watch the resource it names."""
        member = self.registry.owner(server)
        if member is None:
            return
        uri = params.get("uri")
        self.notifications.add(server, method, params)
        if method == UPDATED and isinstance(uri, str):
            for watched in self.subscriptions.uris(member, uri):
                self.changes.changed(UPDATED, watched)

    def connection_opened(self, upstream: Upstream, connection: UpstreamConnection) -> None:
        """Observe a new connection other than the default connection."""
        connection.listeners.append(partial(self._connection_notified, connection))
        self.comparison.connection_opened(upstream, connection)

    def _connection_notified(self, connection: UpstreamConnection, note: Notification) -> None:
        """Notify the sessions on a connection that are subscribed to a changed resource.

        The specification allows notifications about a part of a resource, which count as changes of
        the whole resource.
        """
        uri = read_params_head(note.params).uri if note.method == UPDATED else None
        if not isinstance(uri, str):
            return
        # A copy, because sessions may leave the connection during the loop.
        for session in list(connection.sessions):
            for watched in [one for one in session.uris if uri.startswith(one)]:
                self.changes.changed_for((session.peer,), UPDATED, watched)

    def list_changed(self, kind: ListKind, server: str | None = None) -> None:
        """Notify clients of a changed list. With `server`, notify only clients that may see that
        server.
        """
        audience = None if server is None else self.audience_of(server)
        if audience is None:
            self.changes.changed(LIST_CHANGED[kind])
        else:
            self.changes.changed_for(audience, LIST_CHANGED[kind])
