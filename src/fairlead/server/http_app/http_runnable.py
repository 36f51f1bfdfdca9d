"""What can be served over HTTP is run in one way, whatever it is."""

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
    """The optional part of an `EndpointHandler`; None where there is nothing to do."""

    # Takes over stateless requests that need no task.
    delegate_post: "DelegatePost | None" = None
    # Receives bodies that are not messages.
    on_malformed: OnMalformed | None = None
    # Returns True for clients that are served nothing at this path.
    hides: Callable[[Principal], bool] | None = None


class NoInlineMethods:
    """The part of an `EndpointHandler` that answers no request without a task."""

    inline_methods: Container[str] = ()

    def answer_inline(self, exchange: Exchange) -> Answer:
        """Return None: it has no answer yet."""
        return None


class HttpRunnable(EndpointHooks):
    """Runs the ASGI application of a server, a relay or a gateway."""

    port = 8080  # where it listens if nobody says otherwise

    def create_http_app(self, settings: "HttpSettings | None" = None, **options: Any) -> "HttpApp":
        """The ASGI application. Options are fields of `HttpSettings`."""
        raise NotImplementedError  # what is served is for each kind to say

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
        """Serve HTTP until cancelled: on a port of this machine, or on a unix socket.

        `started` is told the URL. Other machines are let in only with `auth_token` or
        `verify_token`; `insecure` says that something else keeps strangers out.

        Raises:
            ConfigError: it cannot listen there, or should not.
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
        """An application is not served any longer."""
