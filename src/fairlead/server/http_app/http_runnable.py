"""Base classes of servers, relays and gateways that are served over HTTP."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ...keyword_arguments import named_arguments
from .endpoint_handler import EndpointHandler

if TYPE_CHECKING:
    import ssl

    from ...transport.http.server.http_settings import HttpSettings
    from .app import HttpApp

__all__ = ["HttpRunnable", "StandInServer"]


class HttpRunnable:
    """Base class that runs the ASGI application of a server, a relay or a gateway."""

    port = 8080  # default port of `run_http`

    def create_http_app(self, settings: "HttpSettings | None" = None, **options: Any) -> "HttpApp":
        """Return the ASGI application. `options` are fields of `HttpSettings`."""
        raise NotImplementedError  # each subclass builds its own application

    @named_arguments
    async def run_http(
        self,
        host: str = "127.0.0.1",
        port: int | None = None,
        *,
        uds: str | None = None,
        tls: "ssl.SSLContext | None" = None,
        insecure: bool = False,
        started: Callable[[str], None] | None = None,
        settings: "HttpSettings | None" = None,
        **options: Any,
    ) -> None:
        """Serve HTTP until cancelled, on a port of this machine or on a Unix socket.

        `started` is called with the URL. Listening for other machines requires `auth_token` or
        `verify_token`, or `insecure=True` if a proxy authenticates the clients.

        Raises:
            ConfigError: The address cannot be bound, or is reachable without authentication.
            TypeError: An argument or option has another type, or is unknown.
        """
        from .uvicorn_runner import bind, serve_http, url_of

        app = self.create_http_app(settings, **options)
        try:
            place = self.port if port is None else port
            listening = bind(host, place, uds, app.settings, insecure=insecure)
            url = url_of(listening, app.settings.path, tls=tls is not None)
            say = None if started is None else lambda: started(url)
            await serve_http(app, listening, tls=tls, started=say)
        finally:
            self.http_ended(app)

    def http_ended(self, app: "HttpApp") -> None:
        """Hook that is called when an application is no longer served."""


class StandInServer(HttpRunnable, EndpointHandler):
    """Server that stands in for another server: a relay to it, or a tape recorded from it.

    It needs no start-up and closes all its connections when it stops.
    """

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

    def create_http_app(self, settings: "HttpSettings | None" = None, **options: Any) -> "HttpApp":
        """Return the ASGI application. `options` are fields of `HttpSettings`."""
        from ...transport.http.server.http_settings import HttpSettings
        from .app import HttpApp

        return HttpApp(self, settings if settings is not None else HttpSettings(**options))
