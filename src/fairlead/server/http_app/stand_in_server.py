"""Servers that represent another server: a relay to it, or a tape of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ...transport.http.server.http_settings import HttpSettings
from .endpoint_handler import EndpointHandler
from .http_runnable import HttpRunnable

if TYPE_CHECKING:
    from .app import HttpApp

__all__ = ["StandInServer"]


class StandInServer(HttpRunnable, EndpointHandler):
    """Server that needs no start-up and closes everything when it stops."""

    async def close(self) -> None:
        """Close all connections."""
        raise NotImplementedError

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Close the server when the context ends."""
        try:
            yield None
        finally:
            await self.close()

    def create_http_app(self, settings: HttpSettings | None = None, **options: Any) -> "HttpApp":
        """Return the ASGI application. `options` are fields of `HttpSettings`."""
        from .app import HttpApp

        return HttpApp(self, settings if settings is not None else HttpSettings(**options))
