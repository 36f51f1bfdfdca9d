"""MCP endpoint over HTTP for all revisions at one URL, as an ASGI application.

A request is admitted by its headers and then dispatched by its method.
"""

from collections.abc import Callable, Container

from ....errors import ChannelClosed
from ....interceptor import Handler, OnMalformed
from ....protocol.caller import Caller
from ....protocol.envelope import TransportContext
from ....protocol.headers import ParamHeader
from ....protocol.identity.principal import Principal
from ....wire import Decoder, Notification
from .asgi import AsgiCall, BodyTimeout, Receive, Scope, Send
from .error_status import ErrorStatus
from .http_settings import HttpSettings
from .post_router import PostRouter
from .refusals import MessageRefusals, send_rejection
from .request_guard import RequestGuard, RequestRefusal
from .request_headers import repeated_header
from .sessionless_posts import SessionlessPosts
from .sessions.http_session import AcceptSession
from .sessions.session_manager import SessionManager
from .sessions.session_posts import SessionPosts
from .sessions.stream_resume import StreamResumption
from .stateless_post import DelegatePost, InlinePostHandler, StatelessPosts

__all__ = ["HttpEndpoint"]

_ALLOWED = b"GET, POST, DELETE, OPTIONS"
# A few compressed bytes could decompress to any size.
_PACKED = RequestRefusal(
    415,
    "Content-Encoding is not supported: send plain bodies",
    ((b"accept-encoding", b"identity"),),
)


class HttpEndpoint:
    """Endpoint for Streamable HTTP of all revisions at one path."""

    def __init__(
        self,
        handler: Handler,
        accept: AcceptSession,
        settings: HttpSettings,
        *,
        inline: InlinePostHandler | None = None,
        inline_methods: Container[str] = (),
        tool_param_headers: Callable[[str, Principal], tuple[ParamHeader, ...]] | None = None,
        on_stateless_notification: Callable[[Notification, Caller, TransportContext], None]
        | None = None,
        delegate_post: DelegatePost | None = None,
        on_malformed: OnMalformed | None = None,
        hides: Callable[[Principal], bool] | None = None,
    ) -> None:
        """Serve sessions and stateless requests at one path.

        Args:
            accept: Starts to serve the channel of a session.
            tool_param_headers: Returns the arguments of a tool that are mirrored in headers.
            on_stateless_notification: Receives notifications outside a session.
            delegate_post: Handles stateless requests that need no task.
            on_malformed: Receives bodies that are not valid messages.
            hides: Returns True for principals to which this path is hidden.
        """
        self.settings = settings
        self.guard = RequestGuard(settings)
        self.sessions = SessionManager(settings, accept)
        self.hides = hides
        self.decoder = Decoder()
        self.posts = StatelessPosts(
            handler,
            inline=inline,
            inline_methods=inline_methods,
            heartbeat=settings.heartbeat,
            take=delegate_post,
        )
        refusals, status = MessageRefusals(on_malformed), ErrorStatus(settings, self.decoder)
        self.session_posts = SessionPosts(settings, self.sessions, refusals, status)
        self.sessionless_posts = SessionlessPosts(
            settings,
            self.posts,
            refusals,
            status,
            tool_param_headers=tool_param_headers,
            on_notification=on_stateless_notification,
        )
        streams = StreamResumption(settings, self.sessions, refusals)
        router = PostRouter(
            settings,
            self.decoder,
            self.sessions,
            refusals,
            self.session_posts,
            self.sessionless_posts,
        )
        self._methods = {"POST": router.post, "GET": streams.get, "DELETE": streams.delete}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.serve(AsgiCall(scope, receive, send, self.settings.body_timeout))

    async def close(self) -> None:
        """Terminate all sessions and their streams."""
        await self.sessions.close()

    @property
    def ending(self) -> bool:
        """True after `close` was called."""
        return self.sessions.closing

    def admit(self, call: AsgiCall) -> Principal | RequestRefusal:
        """Return the principal of a request or a refusal, decided by its headers alone."""
        refusal = self.guard.refuse(call.headers, call.server)
        if refusal is not None:
            return refusal
        who = self.guard.principal(call.headers)
        # After the token, so that only authorized clients see this refusal.
        if call.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            return who if isinstance(who, RequestRefusal) else _PACKED
        return who

    async def serve(self, call: AsgiCall) -> None:
        """Handle one request to the endpoint."""
        # Policies and stored sessions refer to the configured spelling of the path.
        call.path = self.settings.path
        if call.method == "OPTIONS":
            await self.preflight(call)
            return
        who = self.admit(call)
        if isinstance(who, RequestRefusal):
            await send_rejection(call, who)
            return
        if (
            call.method != "POST"  # `PostRouter` refuses it with the id of the message
            and len(call.headers) != len(call.scope["headers"])
            and (name := repeated_header(call))
        ):
            await call.send_text(400, f"the header {name} must occur once")
            return
        if b"origin" in call.headers:
            call.extra += self.guard.cors(call.headers)
        try:
            handle = self._methods.get(call.method)
            if handle is None:
                await call.send_text(405, "use POST, GET or DELETE", [(b"allow", _ALLOWED)])
            else:
                await handle(call, who)
        except ChannelClosed:
            pass  # the client disconnected while sending
        except BodyTimeout:
            await call.reject_slow_body()

    async def preflight(self, call: AsgiCall) -> None:
        """Respond to a CORS preflight, which browsers send without credentials."""
        refusal = self.guard.refuse(call.headers, call.server)
        if refusal is not None:
            await send_rejection(call, refusal)
            return
        allowed = self.guard.cors(call.headers)
        if not allowed:
            await call.send_text(403, "this origin is not in allowed_origins")
            return
        wanted = call.headers.get(b"access-control-request-headers", b"")
        fields = [
            *allowed,
            (b"access-control-allow-methods", _ALLOWED),
            (b"access-control-allow-headers", wanted or b"content-type, accept, authorization"),
            (b"access-control-max-age", b"600"),
        ]
        await call.answer(204, headers=fields)
