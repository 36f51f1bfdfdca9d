"""Requests to an ASGI application without a socket, with access to partial responses."""

import asyncio
import json
from typing import Any

from tests.support.http_server import BOTH

__all__ = ["AsgiRequest"]

_USUAL = {"host": "localhost", "content-type": "application/json", "accept": BOTH}


class AsgiRequest:
    """One request and the events that the application sent so far."""

    def __init__(
        self,
        app: Any,
        message: Any = None,
        headers: dict[str, str | None] | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
        query: str = "",
        more_body: bool = False,
    ) -> None:
        """Send `message`, encoded as JSON unless it is bytes; headers whose value is None are
        omitted.
        """
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.sent: list[Any] = []
        # If set to an event, the client reads nothing more until the event is set.
        self.held: asyncio.Event | None = None
        self._incoming: asyncio.Queue[Any] = asyncio.Queue()
        first = {"type": "http.request", "body": b"" if message is None else body}
        self._incoming.put_nowait({**first, "more_body": more_body})
        fields = {**_USUAL, **(headers or {})}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in fields.items() if v is not None],
            "client": ("127.0.0.1", 5),
        }
        self.task = asyncio.ensure_future(app(scope, self._incoming.get, self._send))

    async def _send(self, event: Any) -> None:
        if self.held is not None:
            await self.held.wait()
        self.sent.append(event)

    def disconnect(self) -> None:
        """Simulate the disconnection of the client."""
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def finished(self) -> "AsgiRequest":
        """Wait until the application has sent its response."""
        async with asyncio.timeout(5):
            await self.task
        return self

    def __await__(self) -> Any:
        return self.finished().__await__()

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(event.get("body", b"") for event in self.sent[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        error = self.json["error"]
        return error["code"], error["message"]
