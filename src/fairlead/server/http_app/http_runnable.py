"""Base classes of servers, relays and gateways that are served over HTTP."""

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from ...interceptor import Answer, Exchange, OnMalformed
from ...protocol.identity.principal import Principal

if TYPE_CHECKING:
    import ssl

    from ...transport.http.server.http_settings import HttpSettings
    from ...transport.http.server.stateless_post import DelegatePost
    from .app import HttpApp

__all__ = ["EndpointHooks", "HttpRunnable", "NoInlineMethods"]


class EndpointHooks:
    """Defaults of the optional attributes of an `EndpointHandler`."""

    # Handler of stateless requests that need no task.
    delegate_post: "DelegatePost | None" = None
    # Receiver of bodies that are not messages.
    on_malformed: OnMalformed | None = None
    # Predicate that returns True for clients to which this path must look unused.
    hides: Callable[[Principal], bool] | None = None


class NoInlineMethods:
    """The part of an `EndpointHandler` that handles every request in a task."""

    inline_methods: Container[str] = ()

    def answer_inline(self, exchange: Exchange) -> Answer:
        """Return None, because no method is inline."""
        return None


class HttpRunnable(EndpointHooks):
    """Base class that runs the ASGI application of a server, a relay or a gateway."""

    port = 8080  # default port of `run_http`

    def create_http_app(self, settings: "HttpSettings | None" = None, **options: Any) -> "HttpApp":
        """Return the ASGI application. `options` are fields of `HttpSettings`."""
        raise NotImplementedError  # each subclass builds its own application

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
        """
        from .uvicorn_runner import run_app

        app = self.create_http_app(settings, **options)
        try:
            await run_app(
                *(app, host, self.port if port is None else port),
                uds=uds,
                tls=tls,
                insecure=insecure,
                started=started,
            )
        finally:
            self.http_ended(app)

    def http_ended(self, app: "HttpApp") -> None:
        """Hook that is called when an application is no longer served."""
