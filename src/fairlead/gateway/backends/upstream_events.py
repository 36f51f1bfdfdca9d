"""Events of the servers behind a gateway: status changes, notifications, changed lists."""

from collections.abc import Callable, Container
from typing import Any, Final

from ...manager.status_events import StatusEvent
from ...server.features.change_broadcaster import UPDATED, ChangeBroadcaster
from ..background_tasks import BackgroundTasks
from ..catalog.list_kind import ListKind
from ..clients.upstream_subscriptions import UpstreamSubscriptions, log_failure
from ..operations.notification_log import NotificationLog
from .registry import BackendRegistry

__all__ = ["UpstreamEvents"]

_LIST_CHANGED: Final = {
    ListKind.TOOLS: "notifications/tools/list_changed",
    ListKind.PROMPTS: "notifications/prompts/list_changed",
    ListKind.RESOURCES: "notifications/resources/list_changed",
    ListKind.TEMPLATES: "notifications/resources/list_changed",
}


class UpstreamEvents:
    """Applies events of servers to their members, and notifies the clients concerned."""

    def __init__(
        self,
        registry: BackendRegistry,
        subscriptions: UpstreamSubscriptions,
        changes: ChangeBroadcaster,
        notifications: NotificationLog,
        tasks: BackgroundTasks,
        audience_of: Callable[[str], Container[object] | None],
    ) -> None:
        """`audience_of` returns the connections that may see a server; None if all may."""
        self._registry = registry
        self._subscriptions = subscriptions
        self._changes = changes
        self._notifications = notifications
        self._tasks = tasks
        self._audience_of = audience_of

    def status_changed(self, event: StatusEvent) -> None:
        """Apply a status event of the manager."""
        for name in event.names:
            member = self._registry.owner(name)
            if member is None:
                continue
            for replica in member.replicas:
                replica.lost()
                if event.kind == "connected" and replica.name == name:
                    self._tasks.start(log_failure(replica.adopt()))
            if event.kind == "connecting":
                member.begins()
            elif event.kind == "connected":
                member.connected()
                self._subscriptions.connected(member, name)
                for uri in self._subscriptions.uris(member):  # it may have changed meanwhile
                    self._changes.changed(UPDATED, uri)
            elif event.kind == "failed":
                member.failed()

    def notification_received(self, server: str, method: str, params: dict[str, Any]) -> None:
        """Log a notification of a server, and forward what it says about lists and resources."""
        member = self._registry.owner(server)
        if member is None:
            return
        uri = params.get("uri")
        self._notifications.add(server, method, params)
        if method.endswith("/list_changed"):
            member.heard(server, method)
        elif method == UPDATED and isinstance(uri, str):
            for watched in self._subscriptions.uris(member, uri):
                self._changes.changed(UPDATED, watched)

    def list_changed(self, kind: ListKind, server: str | None = None) -> None:
        """Notify clients of a changed list; if one server changed it, only those who may see it."""
        audience = None if server is None else self._audience_of(server)
        if audience is None:
            self._changes.changed(_LIST_CHANGED[kind])
        else:
            self._changes.changed_for(audience, _LIST_CHANGED[kind])
