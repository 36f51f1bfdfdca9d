"""Status events and notifications of servers, and their listeners."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from .connection_keeper import State

__all__ = [
    "NotificationListener",
    "StatusEvent",
    "StatusListener",
    "StatusReporter",
    "added_listener",
    "call_safely",
]

log = logging.getLogger("fairlead.manager")

StatusKind: TypeAlias = Literal["connecting", "connected", "failed", "reconnecting", "disconnected"]

# `stopped` has no kind: `report_disconnected` reports servers that were removed.
_KINDS: dict[str, StatusKind] = {
    "connecting": "connecting",
    "connected": "connected",
    "reconnecting": "reconnecting",
    "failed": "failed",
    "suspended": "failed",
    "idle": "disconnected",
}


class StatusEvent(Struct, frozen=True, kw_only=True):
    """A status change of one or several servers."""

    kind: StatusKind
    names: tuple[str, ...]
    error: str | None = None
    path: str | None = None


StatusListener: TypeAlias = Callable[[StatusEvent], None]
NotificationListener: TypeAlias = Callable[[str, str, dict[str, Any]], Any]


class StatusReporter:
    """Listeners for the status and the notifications of servers. Their exceptions are logged."""

    def __init__(self) -> None:
        self._status: list[StatusListener] = []
        self._notification: list[NotificationListener] = []
        self._reported: dict[str, StatusKind] = {}  # the kind of the last event of each server

    # The two methods below return a function that removes the listener.

    def add_status(self, listener: StatusListener) -> Callable[[], None]:
        return added_listener(self._status, listener)

    def add_notification(self, listener: NotificationListener) -> Callable[[], None]:
        return added_listener(self._notification, listener)

    def report_connecting(self, names: list[str]) -> None:
        """Send one event for servers that start together."""
        self._reported.update(dict.fromkeys(names, "connecting"))
        self._emit("connecting", names)

    def report_state(
        self, name: str, state: State, error: BaseException | None, path: str | None
    ) -> None:
        """Send an event about a server, unless its last event had the same kind."""
        kind = _KINDS.get(state)
        if kind is None or self._reported.get(name) == kind:
            return
        self._reported[name] = kind
        self._emit(kind, (name,), None if error is None else str(error), path)

    def report_disconnected(self, names: list[str], path: str | None) -> None:
        """Send one event for servers that were stopped together, and forget them."""
        for name in names:
            self._reported.pop(name, None)
        self._emit("disconnected", names, path=path)

    def report_notification(self, server: str, method: str, params: dict[str, Any]) -> None:
        # A copy, because a listener may remove itself while it is called.
        for listener in tuple(self._notification):
            call_safely(listener, server, method, params)

    def _emit(
        self,
        kind: StatusKind,
        names: Iterable[str],
        error: str | None = None,
        path: str | None = None,
    ) -> None:
        if not names:
            return
        event = StatusEvent(kind=kind, names=tuple(names), error=error, path=path)
        # A copy, for the same reason as in `report_notification`.
        for listener in tuple(self._status):
            call_safely(listener, event)


def added_listener(listeners: list[Any], listener: Any) -> Callable[[], None]:
    """Add a listener and return a function that removes it."""
    listeners.append(listener)

    def remove() -> None:
        # The returned function may be called more than once.
        if listener in listeners:
            listeners.remove(listener)

    return remove


def call_safely(listener: Callable[..., Any], *arguments: Any) -> None:
    """Call a function of the host program and log its exception."""
    try:
        listener(*arguments)
    except Exception:  # code of the host program may raise anything
        log.exception("a listener failed")
