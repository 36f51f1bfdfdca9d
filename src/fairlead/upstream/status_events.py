"""Events about servers: their status and their notifications, and who receives them."""

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

# States that are not listed are not reported.
_KINDS: dict[str, StatusKind] = {
    "connecting": "connecting",
    "connected": "connected",
    "reconnecting": "reconnecting",
    "failed": "failed",
    "suspended": "failed",
    "idle": "disconnected",
}


class StatusEvent(Struct, frozen=True, kw_only=True):
    """A change of one or several servers."""

    kind: StatusKind
    names: tuple[str, ...]
    error: str | None = None
    path: str | None = None


StatusListener: TypeAlias = Callable[[StatusEvent], None]
NotificationListener: TypeAlias = Callable[[str, str, dict[str, Any]], Any]


class StatusReporter:
    """Calls listeners; one that fails is logged."""

    def __init__(self) -> None:
        self._status: list[StatusListener] = []
        self._notification: list[NotificationListener] = []
        self._reported: dict[str, StatusKind] = {}  # the last event about each server

    # Each of these returns a function that removes the listener.

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
        """Send an event about a server, unless it would repeat the one before."""
        kind = _KINDS.get(state)
        if kind is None or self._reported.get(name) == kind:
            return
        self._reported[name] = kind
        self._emit(kind, (name,), None if error is None else str(error), path)

    def report_disconnected(self, names: list[str], path: str | None) -> None:
        """Send one event for servers that end together, and forget them."""
        for name in names:
            self._reported.pop(name, None)
        self._emit("disconnected", names, path=path)

    def report_notification(self, server: str, method: str, params: dict[str, Any]) -> None:
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
        for listener in tuple(self._status):
            call_safely(listener, event)


def added_listener(listeners: list[Any], listener: Any) -> Callable[[], None]:
    """Add a listener; return the function that removes it."""
    listeners.append(listener)

    def remove() -> None:
        if listener in listeners:
            listeners.remove(listener)

    return remove


def call_safely(listener: Callable[..., Any], *arguments: Any) -> None:
    """Call a function of the host program; log what it raises."""
    try:
        listener(*arguments)
    except Exception:  # the host's code
        log.exception("a listener failed")
