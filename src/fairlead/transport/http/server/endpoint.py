"""MCP endpoint over HTTP for all revisions at one URL, as an ASGI application.

A request is admitted by its headers and then dispatched by its method. A POST is routed by the
protocol era of its message. The rules apply in this order: a batch belongs to a handshake-era
revision; a message with its own metadata is stateless; `initialize` opens a session; a message with
a session id belongs to that session; all others are answered without a session, if the settings
allow it.
"""

from collections.abc import Callable, Container, Sequence

from ....errors import ChannelClosed, RemoteProtocolError, RpcError
from ....interceptor import Handler, OnMalformed
from ....protocol.caller import Caller, Principal, read_params_head
from ....protocol.envelope import TransportContext
from ....protocol.headers import ParamHeader
from ....protocol.revisions import HANDSHAKE, Revision, find_revision
from ....wire import Batch, Decoder, Message, Notification, Request, encode, failure
from ....wire.error_codes import HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST
from ...channel import Incoming
from .asgi import CLOSE, AsgiCall, BodyTimeout, BodyTooLarge, Receive, Scope, Send
from .error_status import ErrorStatus
from .http_settings import HttpSettings
from .refusals import MessageRefusals, send_rejection, unknown_session
from .request_guard import RequestGuard, RequestRefusal
from .request_headers import accepts, claims_stateless, repeated_header
from .sessions.event_store import read_event_id, stream_scopes
from .sessions.event_stream import EventStream, write_stream
from .sessions.http_session import AcceptSession, HttpSession
from .sessions.session_manager import SessionManager
from .sessions.session_posts import ASSUMED_REVISION, SessionPosts
from .stateless_post import DelegatePost, InlinePostHandler, StatelessPosts
from .token_access import RequiredScopes, TokenAccess
from .token_expiry import expiring

__all__ = ["HttpEndpoint", "StreamResumption"]

_POST_ONLY = [(b"allow", b"POST")]


class StreamResumption:
    """Handler of GET (listen to a session or resume a stream) and DELETE (end a session)."""

    def __init__(
        self,
        settings: HttpSettings,
        sessions: SessionManager,
        refusals: MessageRefusals,
        guard: RequestGuard,
    ) -> None:
        self._settings = settings
        self._guard = guard
        self._sessions = sessions
        self._refusals = refusals

    async def get(self, call: AsgiCall, principal: Principal) -> None:
        """Send the listening stream of a session, or resume the stream in `Last-Event-ID`."""
        session_id = call.headers.get(b"mcp-session-id")
        if session_id is None:
            await call.send_text(405, "GET requires an Mcp-Session-Id header", _POST_ONLY)
            return
        if not accepts(call.headers.get(b"accept", b""), b"text/event-stream"):
            await call.send_text(406, "Accept: text/event-stream")
            return
        session = await self._sessions.find(call, session_id, principal)
        if session is None and self._sessions.closing:
            await call.send_later("the server is shutting down")
            return
        if session is None:
            await self._refusals.refuse(call, None, unknown_session(), 404)
            return
        last = call.headers.get(b"last-event-id")
        if last is not None:
            await self._resume(call, session, last.decode("latin-1"), principal)
        else:
            await self._listen(call, session, session.standalone, None, principal)

    async def _resume(
        self, call: AsgiCall, session: HttpSession, last: str, principal: Principal
    ) -> None:
        where = read_event_id(last)
        if where is None:
            await self._refuse(
                call, f"Invalid Last-Event-ID {last[:50]!r}: expected an id of this server"
            )
            return
        name, number = where
        stream = session.find(name)
        if stream is not None:
            if await self._lacks_scopes(call, name, principal):
                return
            stream.attach(call)
            stream.take()  # drop unwritten messages, which are replayed from the store
        # Events after this number reach the new carrier directly and must not be replayed as well.
        upto = stream.number if stream is not None else None
        missed = await self._sessions.store.after(session.id, name, number)
        if stream is None and missed is None:
            await self._refuse(call, f"The stream of event {last!r} has ended")
            return
        if stream is None and await self._lacks_scopes(call, name, principal):
            return
        replay = [(n, frame) for n, frame in missed or [] if upto is None or n <= upto]
        stream = stream or _ended_stream(session, name)
        await self._listen(call, session, stream, replay, principal)

    async def _lacks_scopes(self, call: AsgiCall, name: str, principal: Principal) -> bool:
        """Respond with 403 if a token may not send the requests whose responses it would get."""
        refusal = self._guard.refuse_scopes(principal, stream_scopes(name))
        if refusal is not None:
            await send_rejection(call, refusal)
        return refusal is not None

    async def _refuse(self, call: AsgiCall, why: str) -> None:
        await self._refusals.refuse(call, None, RpcError(INVALID_REQUEST, why), 400)

    async def _listen(
        self,
        call: AsgiCall,
        session: HttpSession,
        stream: EventStream,
        replay: list[tuple[int, bytes]] | None,
        principal: Principal,
    ) -> None:
        def leave() -> None:
            if stream.carrier is call:
                stream.leave()  # the client resumes with a new token

        revision = session.revision or HANDSHAKE[-1]
        stream.attach(call)
        if stream is session.standalone and revision.resumable:
            stream.number_events()
        with expiring(lambda: principal, leave):
            await write_stream(
                call,
                stream,
                self._settings,
                prime=revision.polling and replay is None,
                replay=replay,
            )

    async def delete(self, call: AsgiCall, principal: Principal) -> None:
        """Terminate a session."""
        session_id = call.headers.get(b"mcp-session-id")
        if session_id is None:
            await call.send_text(405, "DELETE requires an Mcp-Session-Id header", _POST_ONLY)
            return
        name = session_id.decode("latin-1")
        session, restorer = self._sessions.get(name, principal), self._sessions.restorer
        if session is not None:
            await self._sessions.end(session)
        # A session of another process, or of this one before a restart, may be in the store.
        elif restorer is None or not await restorer.drop(name, call.path, principal):
            await self._refusals.refuse(call, None, unknown_session(), 404)
            return
        await call.answer(200)


def _ended_stream(session: HttpSession, name: str) -> EventStream:
    """Return a stream that is marked as done and sends only stored events."""
    stream = EventStream(session.id, name, None)
    stream.numbered = stream.done = True
    return stream


_ALLOWED = b"GET, POST, DELETE, OPTIONS"
# A few compressed bytes could decompress to any size.
_PACKED = RequestRefusal(
    415,
    "Content-Encoding is not supported: send plain bodies",
    ((b"accept-encoding", b"identity"),),
    reason="content_encoding",
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
        access: TokenAccess | None = None,
        required_scopes: RequiredScopes | None = None,
    ) -> None:
        """Serve sessions and stateless requests at one path.

        Args:
            accept: Starts to serve the channel of a session.
            tool_param_headers: Returns the arguments of a tool that are mirrored in headers.
            on_stateless_notification: Receives notifications outside a session.
            delegate_post: Handles stateless requests that need no task.
            on_malformed: Receives bodies that are not valid messages.
            hides: Returns True for principals from which this path is hidden.
            access: Verifies access tokens.
            required_scopes: Returns the scopes that a message requires.
        """
        self.settings = settings
        self.guard = RequestGuard(settings, access)
        self._required_scopes = required_scopes
        self.sessions = SessionManager(settings, accept)
        self.hides = hides
        self.decoder = Decoder()
        self._refusals = MessageRefusals(on_malformed)
        status = ErrorStatus(settings, self.decoder)
        self.session_posts = SessionPosts(
            settings, self.sessions, self._refusals, status, self.required_scopes
        )
        self.posts = StatelessPosts(
            handler,
            settings,
            self._refusals,
            status,
            inline=inline,
            inline_methods=inline_methods,
            take=delegate_post,
            tool_param_headers=tool_param_headers,
            on_notification=on_stateless_notification,
        )
        streams = StreamResumption(settings, self.sessions, self._refusals, self.guard)
        self._methods = {"POST": self.post, "GET": streams.get, "DELETE": streams.delete}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = self.settings
        await self.serve(AsgiCall(scope, receive, send, own.body_timeout, own.on_refused))

    async def close(self, drain: float = 0.0) -> None:
        """Terminate all sessions and their streams; running requests may take `drain` seconds."""
        await self.sessions.close(drain)

    @property
    def ending(self) -> bool:
        """True after `close` was called."""
        return self.sessions.closing

    async def admit(
        self, call: AsgiCall, path: str | None = None, guard: RequestGuard | None = None
    ) -> Principal | RequestRefusal:
        """Return the principal of a request or a refusal, decided by its headers alone.

        Called once per request, because the proof of a bound token is accepted once. `path` is the
        request's path if it differs from the endpoint's; `guard` replaces the endpoint's guard.
        """
        guard = guard or self.guard
        refusal = guard.refuse(call.headers, call.server)
        if refusal is not None:
            return refusal
        who = await guard.authenticate(call.headers, call.method, path)
        # Checked after the token, so that only authorized clients see this refusal.
        if call.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            return who if isinstance(who, RequestRefusal) else _PACKED
        return who

    def refuse_scopes(
        self, principal: Principal, message: Message | Batch, path: str | None = None
    ) -> RequestRefusal | None:
        """Return the 403 for a body that requires scopes which its token lacks, or None.

        The challenge for a batch names the scopes of all messages. `path` is the request's path if
        it differs from the endpoint's.
        """
        if self.guard.open:
            return None
        messages = message.items if isinstance(message, Batch) else (message,)
        needed = self.required_scopes(principal, messages)
        return self.guard.refuse_scopes(principal, needed, path)

    def required_scopes(
        self, principal: Principal, messages: Sequence[Incoming]
    ) -> tuple[str, ...]:
        """Return the scopes that messages require beyond those of every request."""
        required = self._required_scopes
        if required is None or self.guard.open:
            return ()
        needed: dict[str, None] = {}
        for one in messages:
            if isinstance(one, Request | Notification):
                for scope in required(one, principal):
                    needed[scope] = None
        return tuple(needed)

    async def serve(
        self, call: AsgiCall, admitted: Principal | RequestRefusal | None = None
    ) -> None:
        """Handle one request to the endpoint; `admitted` is the outcome of `admit`, if known."""
        # Policies and stored sessions refer to the configured spelling of the path.
        call.path = self.settings.path
        if call.method == "OPTIONS":
            await self.preflight(call)
            return
        who = await self.admit(call) if admitted is None else admitted
        if b"origin" in call.headers:
            call.extra += self.guard.cors(call.headers)
        if not isinstance(who, RequestRefusal) and call.method != "POST":
            who = self.guard.refuse_scopes(who, ()) or who
        if isinstance(who, RequestRefusal):
            await send_rejection(call, who)
            return
        if (
            # `post` refuses repeated headers itself, with the id of the message
            call.method != "POST"
            and len(call.headers) != len(call.scope["headers"])
            and (name := repeated_header(call))
        ):
            await call.send_text(400, f"the header {name} must occur once")
            return
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

    async def post(self, call: AsgiCall, principal: Principal) -> None:
        """Respond to one POST."""
        headers = call.headers
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            await call.send_text(415, "Content-Type must be application/json")
            return
        accept = headers.get(b"accept")
        if accept is not None and not accepts(accept, b"application/json", b"text/event-stream"):
            await call.send_text(406, "Accept: application/json, text/event-stream")
            return
        try:
            body = await call.body(self.settings.max_body)
        except BodyTooLarge:
            limit = f"a message has at most {self.settings.max_body} bytes"
            await call.send_text(413, limit, CLOSE)
            return
        try:
            message = self.decoder.decode(body)
        except RemoteProtocolError as exc:
            await self._refuse_malformed(call, body, exc)
            return
        named = b"mcp-session-id" in headers
        handshake_era = self._in_session if named else self._without_session
        # Checked after decoding, because the error carries the id of the message.
        if len(headers) != len(call.scope["headers"]) and (twice := repeated_header(call)):
            why = RpcError(HEADER_MISMATCH, f"The header {twice} must occur once")
            await self._refusals.refuse(call, message, why, 400)
        elif (refusal := self.refuse_scopes(principal, message)) is not None:
            await self._refusals.refuse_access(call, message, refusal)
        elif isinstance(message, Batch):
            await self.session_posts.batch(call, message, principal)
        # A response answers a server's request, and the server sends requests only in sessions.
        elif not isinstance(message, Request | Notification):
            await handshake_era(call, message, principal)
        elif (head := read_params_head(message.params)).is_self_describing:
            await self.posts.stateless(call, message, head, principal)
        elif message.method == "initialize" and isinstance(message, Request):
            if self.settings.sessions:
                await self.session_posts.initialize(call, message, principal)
            else:
                await self.posts.standalone(call, message, None, principal)
        else:
            await handshake_era(call, message, principal)

    async def _refuse_malformed(
        self, call: AsgiCall, body: bytes, error: RemoteProtocolError
    ) -> None:
        self._refusals.report("not a message", call, body, str(error))
        # JSON-RPC uses `null` for an id that cannot be read; stateless revisions omit it.
        absent = error.request_id is None and claims_stateless(call.headers)
        answer = failure(error.request_id, error.code, str(error), absent_id=absent)
        await call.answer(400, encode(answer))

    async def _in_session(self, call: AsgiCall, message: Message, principal: Principal) -> None:
        headers = call.headers
        version = headers.get(b"mcp-protocol-version")
        session = await self.sessions.find(call, headers[b"mcp-session-id"], principal)
        if session is None and self.ending:
            # After 404 the client would forget a session that the next process may restore.
            await call.send_later("the server is shutting down")
        elif session is None:
            await self._refusals.refuse(call, message, unknown_session(), 404)
        elif version is not None and find_revision(version.decode("latin-1")) is None:
            await self._refusals.refuse(call, message, _bad_version(version), 400)
        else:
            await self.session_posts.post(call, session, [message], principal)

    async def _without_session(
        self, call: AsgiCall, message: Message, principal: Principal
    ) -> None:
        version = call.headers.get(b"mcp-protocol-version")
        revision = None if version is None else find_revision(version.decode("latin-1"))
        why = None
        if version is not None and revision is None:
            why = _bad_version(version)
        # Stateless requests must state the version in `_meta` as well, so this one is incomplete.
        elif revision is not None and revision.stateless:
            missing = "_meta must contain io.modelcontextprotocol/protocolVersion"
            why = RpcError(INVALID_PARAMS, missing)
        elif self.settings.require_session:
            why = RpcError(INVALID_REQUEST, "Mcp-Session-Id is missing: send initialize first")
        if why is not None:
            await self._refusals.refuse(call, message, why, 400)
            return
        assumed = revision or ASSUMED_REVISION
        await self.posts.standalone(call, message, assumed, principal)


def _bad_version(version: bytes) -> RpcError:
    spoken = ", ".join(Revision)
    shown = version[:50].decode("latin-1")
    return RpcError(INVALID_REQUEST, f"MCP-Protocol-Version {shown!r} is not one of {spoken}")
