"""What is served in place of a server: a relay to it, or a tape of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ...transport.http.server.http_settings import HttpSettings
from .http_runnable import HttpRunnable, NoInlineMethods

if TYPE_CHECKING:
    from .app import EndpointHandler, HttpApp

__all__ = ["StandInServer"]


class StandInServer(NoInlineMethods, HttpRunnable):
    """Nothing has to be open before the first client comes; all is closed behind the last."""

    async def close(self) -> None:
        """End everything that is open."""
        raise NotImplementedError

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Close it at the end."""
        try:
            yield None
        finally:
            await self.close()

    def create_http_app(
        self: "EndpointHandler", settings: HttpSettings | None = None, **options: Any
    ) -> "HttpApp":
        """The ASGI application. Options are fields of `HttpSettings`."""
        from .app import HttpApp

        return HttpApp(self, settings if settings is not None else HttpSettings(**options))
