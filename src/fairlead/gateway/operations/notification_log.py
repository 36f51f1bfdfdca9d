"""Log of the latest notifications of a gateway's servers."""

from collections import deque
from time import time
from typing import Any, Final

__all__ = ["NotificationLog"]

MAX_ENTRIES: Final = 200  # maximum number of notifications that are kept
# Methods that are not logged: they are so frequent that they would displace all other entries.
_IGNORED: Final = ("notifications/subscriptions/acknowledged", "notifications/progress")


class NotificationLog:
    """Log of the latest notifications of servers: method and URI, without other params."""

    def __init__(self) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=MAX_ENTRIES)

    def add(self, server: str, method: str, params: dict[str, Any]) -> None:
        """Log a notification of a server."""
        if method in _IGNORED:
            return
        uri = params.get("uri")
        entry = {"at": round(time(), 3), "server": server, "method": method}
        self._entries.append({**entry, "uri": uri} if isinstance(uri, str) else entry)

    def list(self) -> list[dict[str, Any]]:
        """Return the entries, oldest first."""
        return [*self._entries]
