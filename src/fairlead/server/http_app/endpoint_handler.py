"""Base class of the handlers behind an HTTP endpoint."""

from collections.abc import AsyncIterator, Callable, Container, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ...interceptor import Answer, Exchange, Handler, OnMalformed
from ...peer import Peer
from ...protocol.caller import Caller, Principal
from ...protocol.envelope import TransportContext
from ...transport.channel import Channel
from ...wire import Notification

if TYPE_CHECKING:
    from ...protocol.headers import ParamHeader
    from ...transport.http.server.stateless_post import DelegatePost
    from ...transport.http.server.token_access import RequiredScopes

__all__ = ["EndpointHandler"]


class EndpointHandler:
    """Handler behind an HTTP endpoint: a server, a relay or an endpoint of a gateway."""

    handler: Handler
    # Methods that `answer_inline` may be called for; all others are handled in a task.
    inline_methods: Container[str] = ()
    answer_inline: Callable[[Exchange], Answer] = staticmethod(lambda _: None)
    # Handler of stateless requests that need no task; used by relays.
    delegate_post: "DelegatePost | None" = None
    # Receiver of bodies that are not messages.
    on_malformed: OnMalformed | None = None
    # Predicate that returns True for clients to which this path must look unused.
    hides: Callable[[Principal], bool] | None = None
    # Returns the scopes that the token of a message must have; None if no message requires any.
    required_scopes: "RequiredScopes | None" = None
    # Receiver of notifications that came outside of any connection.
    on_stateless_notification: Callable[[Notification, Caller, TransportContext], None] | None = (
        None
    )

    def attach(self, channel: Channel, principal: Principal) -> Peer:
        """Serve one channel in the background and return its peer, which can be closed."""
        raise NotImplementedError

    def tool_param_headers(self, tool: str, principal: Principal) -> "tuple[ParamHeader, ...]":
        """Return the arguments of a tool that are also sent as headers.

        Return none for a tool that is hidden from the principal.
        """
        raise NotImplementedError

    def all_scopes(self) -> Sequence[str]:
        """Return all scopes that any message may require; the metadata lists them."""
        return ()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Any]:
        """Keep the handler open while the application is served. Does nothing by default."""
        yield None

    async def end_streams(self) -> None:
        """End the streams of clients that only listen for changes."""
        raise NotImplementedError
