"""The MCP endpoint over HTTP: every era and shape at one URL, as a bare ASGI application.

Which era a POST belongs to is decided in this order: who may come in at all, what it is, whether it
describes itself (stateless), whether it introduces itself (`initialize`), whether it names a
session; and what is left is served without a session, if that is allowed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from typing import Literal

from msgspec import UNSET, Raw, UnsetType

from ....errors import ChannelClosed, RemoteProtocolError, RpcError
from ....interceptor import Handler, MalformedFrame, OnMalformed
from ....protocol.caller import Caller, ParamsHead, read_params_head, stateless_caller
from ....protocol.conversation.conversation import Conversation, ConversationRole
from ....protocol.conversation.conversation_events import RequestReceived, RequestRejected
from ....protocol.envelope import Direction, TransportContext
from ....protocol.headers import ParamHeader, check_mirrored, check_params, status_of
from ....protocol.identity.principal import Principal
from ....protocol.revisions import HANDSHAKE, Revision, find_revision
from ....wire import Batch, Decoder, Message, Notification, Request, encode, failure
from ....wire.error_codes import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    UNSUPPORTED_VERSION,
)
from .asgi import CLOSE, AsgiCall, BodyTimeout, BodyTooLarge, HttpCall, Receive, Scope, Send
from .request_guard import RequestGuard, RequestRefusal
from .sessions.event_store import read_event_id
from .sessions.event_stream import EventStream, write_stream
from .sessions.session_manager import AcceptSession, HttpSession, SessionManager, TooManySessions
from .settings import HttpSettings
from .stateless_post import (
    DelegatePost,
    InlinePostHandler,
    StatelessPosts,
    failure_of,
    mapped_status,
)

__all__ = ["HttpEndpoint", "is_self_describing", "repeated_header", "send_rejection"]

log = logging.getLogger("fairlead.transport")

# Routing headers that a proxy may have read differently than we do, if they are there twice.
_ROUTING = (
    b"mcp-protocol-version",
    b"mcp-method",
    b"mcp-name",
    b"mcp-session-id",
    b"authorization",
    b"host",
    b"origin",
    b"content-type",
)
_ASSUMED = Revision.V2025_03_26  # the revision of a client that does not say, by the later texts
_ALLOWED = b"GET, POST, DELETE, OPTIONS"
# A few bytes could unpack to any size.
_PACKED = RequestRefusal(
    415, "Bodies come as they are, without Content-Encoding", ((b"accept-encoding", b"identity"),)
)

Other = Callable[[AsgiCall], Awaitable[None]]


class HttpEndpoint:
    """Serves Streamable HTTP of all revisions at one path."""

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
            accept: Starts serving a session's channel.
            tool_param_headers: Returns the arguments of a tool that travel as headers.
            on_stateless_notification: Receives notifications that need no session.
            delegate_post: Takes over stateless requests that need no task.
            on_malformed: Is told of bodies that are not messages.
            hides: Returns True for principals that are served nothing at this path.
        """
        self.settings = settings
        self.guard = RequestGuard(settings)
        self.sessions = SessionManager(settings, accept)
        self.hides = hides
        self._marks_of = tool_param_headers
        self._told_alone = on_stateless_notification
        self._on_offence = on_malformed
        self.posts = StatelessPosts(
            handler,
            inline=inline,
            inline_methods=inline_methods,
            heartbeat=settings.heartbeat,
            take=delegate_post,
        )
        self.decoder = Decoder()
        self.ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.serve(AsgiCall(scope, receive, send, self.settings.body_timeout))

    async def close(self) -> None:
        """End all sessions and their streams."""
        self.ending = True
        await self.sessions.close()

    def admit(self, call: HttpCall) -> Principal | RequestRefusal:
        """Return the principal of a request, or the reason to refuse it, by its headers alone."""
        refusal = self.guard.refuse(call.headers, call.server)
        if refusal is not None:
            return refusal
        who = self.guard.principal(call.headers)
        if call.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            return who if isinstance(who, RequestRefusal) else _PACKED
        return who

    async def serve(self, call: AsgiCall) -> None:
        """Serve one request to the endpoint."""
        call.path = self.settings.path  # rules and sessions go by it, however it was written
        if call.method == "OPTIONS":
            await self.preflight(call)
            return
        who = self.admit(call)
        if isinstance(who, RequestRefusal):
            await send_rejection(call, who)
            return
        if (
            call.method != "POST"  # this is answered with the id of the message
            and len(call.headers) != len(call.scope["headers"])
            and (name := repeated_header(call))
        ):
            await call.send_text(400, f"the header {name} must occur once")
            return
        if b"origin" in call.headers:
            call.extra += self.guard.cors(call.headers)
        try:
            match call.method:
                case "POST":
                    await self._post(call, who)
                case "GET":
                    await self._get(call, who)
                case "DELETE":
                    await self._delete(call, who)
                case _:
                    await call.send_text(405, "there is POST, GET, DELETE", [(b"allow", _ALLOWED)])
        except ChannelClosed:
            pass  # the client left while it was sending
        except BodyTimeout:
            await call.reject_slow_body()

    async def preflight(self, call: AsgiCall) -> None:
        """Answer a browser that asks whether its page may use this; it sends no credentials yet."""
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

    # POST

    async def _post(self, call: AsgiCall, principal: Principal) -> None:
        headers = call.headers
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            await call.send_text(415, "the body is application/json")
            return
        accept = headers.get(b"accept")
        if accept is not None and not _accepts(accept, b"application/json", b"text/event-stream"):
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
            self._offended("no message", call, body, str(exc))
            absent = exc.request_id is None and self._claims_stateless(headers)
            answer = failure(exc.request_id, exc.code, str(exc), absent_id=absent)
            await call.answer(400, encode(answer))
            return
        if len(headers) != len(call.scope["headers"]) and (twice := repeated_header(call)):
            why = RpcError(HEADER_MISMATCH, f"The header {twice} is there twice")
            await self._refuse(call, message, why, 400)
            return
        if isinstance(message, Batch):
            await self._batch(call, message, principal)
        elif isinstance(message, Request | Notification):
            head = read_params_head(message.params)
            if is_self_describing(head):
                await self._stateless(call, message, head, principal)
            elif message.method == "initialize" and isinstance(message, Request):
                await self._initialize(call, message, principal)
            else:
                await self._legacy(call, message, principal)
        else:
            await self._legacy(call, message, principal)

    async def _stateless(
        self,
        call: AsgiCall,
        message: Request | Notification,
        head: ParamsHead,
        principal: Principal,
    ) -> None:
        try:
            caller = self.check_stateless(call, message, head, principal)
        except RpcError as exc:
            await self._refuse(call, message, exc, self._status(call)(exc.code))
            return
        if isinstance(message, Notification):
            if self._told_alone is not None:
                self._told_alone(message, caller, call.context)
            await call.answer(202)
            return
        parts, status = self._in_parts(call, message), self._status(call)
        work = self.posts.begin(call, message, caller, head, status, fragments=parts)
        if work is not None:
            await work

    def check_stateless(
        self,
        call: HttpCall,
        message: Request | Notification,
        head: ParamsHead,
        principal: Principal,
    ) -> Caller:
        """Who sends this message, if it and its headers are in order.

        Raises:
            RpcError: they are not.
        """
        assert not isinstance(head.meta, UnsetType)
        try:
            caller = stateless_caller(head.meta, principal)
        except RpcError as exc:
            # A header that says otherwise comes before a version that we do not speak.
            if exc.code == UNSUPPORTED_VERSION:
                check_mirrored(message, head, call.headers)
            raise
        check_mirrored(message, head, call.headers)
        if message.method == "tools/call" and self._marks_of is not None:
            name = "" if isinstance(head.name, UnsetType) else head.name
            marks = self._marks_of(name, principal)
            if marks:
                check_params(marks, head.arguments, call.headers)
        return caller

    async def _initialize(self, call: AsgiCall, message: Request, principal: Principal) -> None:
        if not self.settings.sessions:
            await self._without_session(call, message, None, principal)
            return
        session = await self._open_session(call, principal)
        if session is None:
            return
        stream = session.open_stream([message])
        stream.attach(call)
        session.take(message)
        call.watch(stream.wake, _no_beat, 0)
        try:
            while not (stream.done or call.gone):
                await stream.wait()
        finally:
            call.unwatch()
        if call.gone:  # nobody will ever know its id
            await self.sessions.end(session)
            return
        frames = stream.take()
        stream.detach(call)
        if not frames:
            await _say_later(call, "the server ends")
            return
        frame = frames[-1][1]
        if session.settle_revision():
            if self.sessions.restorer is not None:
                await self.sessions.restorer.keep(session, message)
            given = [(b"mcp-session-id", session.id.encode())]
            await call.answer(200, frame, headers=given)
        else:
            await call.answer(200, frame)
            await self.sessions.end(session)

    async def _open_session(self, call: AsgiCall, principal: Principal) -> HttpSession | None:
        """A new session; if there can be none, that is answered."""
        if self.ending:
            await _say_later(call, "the server ends")
            return None
        try:
            return self.sessions.open(call.context, principal)
        except TooManySessions:
            await _say_later(call, "too many sessions; try again later")
            return None

    async def _legacy(self, call: AsgiCall, message: Message, principal: Principal) -> None:
        """What neither describes nor introduces itself belongs to a session, or stands alone."""
        headers = call.headers
        session_id = headers.get(b"mcp-session-id")
        version = headers.get(b"mcp-protocol-version")
        revision = None if version is None else find_revision(version.decode("latin-1"))
        if session_id is not None:
            session = await self._session(call, session_id, principal)
            if session is None:
                await self._refuse(call, message, _no_session(), 404)
            elif version is not None and revision is None:
                await self._refuse(call, message, _bad_version(version), 400)
            else:
                await self._in_session(call, session, [message])
            return
        if version is not None and (revision is None or revision.stateless):
            missing = "_meta lacks io.modelcontextprotocol/protocolVersion"
            why = RpcError(INVALID_PARAMS, missing) if revision else _bad_version(version)
            await self._refuse(call, message, why, 400)
            return
        if self.settings.require_session:
            why = RpcError(INVALID_REQUEST, "Mcp-Session-Id is missing: begin with initialize")
            await self._refuse(call, message, why, 400)
            return
        await self._without_session(call, message, revision or _ASSUMED, principal)

    async def _without_session(
        self, call: AsgiCall, message: Message, revision: Revision | None, principal: Principal
    ) -> None:
        """DEC-18: a handshake-era message that stands alone."""
        if isinstance(message, Notification):
            await call.answer(202)
            return
        if not isinstance(message, Request):
            why = RpcError(INVALID_REQUEST, "Nothing was asked: there is no session")
            await self._refuse(call, message, why, 400)
            return
        conversation = Conversation(ConversationRole.SERVER, assume=revision, principal=principal)
        event = conversation.receive(message)
        if isinstance(event, RequestRejected):
            await call.answer(200, encode(event.answer))
        elif isinstance(event, RequestReceived):
            caller = event.caller
            parts, status = self._in_parts(call, message), self._legacy_status(call)
            work = self.posts.begin(call, message, caller, event.head, status, fragments=parts)
            if work is not None:
                await work

    async def _in_session(
        self, call: AsgiCall, session: HttpSession, messages: list[Message], *, batch: bool = False
    ) -> None:
        requests = [message for message in messages if isinstance(message, Request)]
        if not requests:
            await session.take_all(messages)
            await call.answer(202)
            return
        for request in requests:
            if session.asked(request.id):
                why = RpcError(INVALID_REQUEST, f"Request id {request.id!r} is already in use")
                await self._refuse(call, request, why, 400)
                return
        stream = session.open_stream(requests)
        stream.attach(call)
        await session.take_all(messages)
        await self.answer_in_session(call, session, stream, batch=batch)

    async def answer_in_session(
        self,
        call: HttpCall,
        session: HttpSession,
        stream: EventStream,
        *,
        batch: bool = False,
        late: bool = False,
    ) -> None:
        """JSON, if nothing but answers comes; else events. Disconnecting cancels nothing here.

        `late`: so much time has passed already that it has to be events.
        """
        settings = self.settings
        as_stream = (late or settings.answers == "sse") and _wants_events(call)
        if not as_stream:
            if not stream.done:
                await asyncio.sleep(0)  # most tools answer at once, and then nobody need watch
            if stream.done:
                as_stream = stream.chatty and _wants_events(call)
            else:
                as_stream = await self._wait_for_answer(call, stream)
        if not as_stream and stream.done:
            frames = [frame for _, frame in stream.take()]
            stream.detach(call)
            if batch:
                await call.answer(200, b"[" + b",".join(frames) + b"]")
            elif frames:
                await call.answer(self._session_status(call, frames[-1]), frames[-1])
            else:
                await call.answer(202)  # cancelled: there is nothing to say
            return
        if call.gone:
            stream.detach(call)
            return
        revision = session.revision
        if revision is not None and revision.resumable:
            session.keep(stream)
        await write_stream(
            call,
            stream,
            heartbeat=settings.heartbeat,
            prime=revision is not None and revision.polling,
            retry=settings.retry,
        )

    async def _wait_for_answer(self, call: HttpCall, stream: EventStream) -> bool:
        """Wait for the first thing to send; True if it has to be a stream."""
        wants_events, late = _wants_events(call), False

        async def beat() -> None:
            nonlocal late
            late = True  # a proxy would think that we are dead: begin the stream
            stream.wake()

        def begins() -> bool:
            return wants_events and (stream.chatty or stream.leaving or late)

        call.watch(stream.wake, beat, self.settings.heartbeat)
        try:
            while not (stream.done or call.gone or begins()):
                await stream.wait()
        finally:
            call.unwatch()
        return begins()

    async def _batch(self, call: AsgiCall, batch: Batch, principal: Principal) -> None:
        headers = call.headers
        session_id = headers.get(b"mcp-session-id")
        session = None
        if session_id is not None:
            session = await self._session(call, session_id, principal)
            if session is None:
                await self._refuse(call, batch, _no_session(), 404)
                return
        version = headers.get(b"mcp-protocol-version", _ASSUMED.value.encode())
        revision = session.revision if session else find_revision(version.decode("latin-1"))
        if revision is None or not revision.batches or (session is None and self._sessions_only):
            why = RpcError(INVALID_REQUEST, "Batches are not part of the agreed protocol version")
            await self._refuse(call, batch, why, 400)
            return
        wrong = [item for item in batch.items if isinstance(item, RemoteProtocolError)]
        if wrong:
            why = RpcError(wrong[0].code, str(wrong[0]))
            await self._refuse(call, batch, why, 400)
            return
        messages = [item for item in batch.items if not isinstance(item, RemoteProtocolError)]
        if session is not None:
            await self._in_session(call, session, messages, batch=True)
            return
        # Without a session, in one of its own that ends with the answer.
        await self._batch_alone(call, messages, revision, principal)

    async def _batch_alone(
        self, call: AsgiCall, messages: list[Message], revision: Revision, principal: Principal
    ) -> None:
        session = await self._open_session(call, principal)
        if session is None:
            return
        try:
            session.revision = revision
            session.take(_introduction(revision))
            session.take(Notification("notifications/initialized"))
            await self._in_session(call, session, messages, batch=True)
        finally:
            await self.sessions.end(session)

    @property
    def _sessions_only(self) -> bool:
        return self.settings.require_session

    # GET and DELETE

    async def _get(self, call: AsgiCall, principal: Principal) -> None:
        session_id = call.headers.get(b"mcp-session-id")
        if session_id is None:
            await call.send_text(405, "GET is for clients with a session", [(b"allow", b"POST")])
            return
        if not _accepts(call.headers.get(b"accept", b""), b"text/event-stream"):
            await call.send_text(406, "Accept: text/event-stream")
            return
        session = await self._session(call, session_id, principal)
        if session is None:
            await self._refuse(call, None, _no_session(), 404)
            return
        last = call.headers.get(b"last-event-id")
        if last is not None:
            await self._resume(call, session, last.decode("latin-1"))
        else:
            await self._listen(call, session, session.standalone, None)

    async def _resume(self, call: AsgiCall, session: HttpSession, last: str) -> None:
        where = read_event_id(last)
        if where is None:
            why = RpcError(INVALID_REQUEST, f"Last-Event-ID {last[:50]!r} is none of ours")
            await self._refuse(call, None, why, 400)
            return
        name, number = where
        stream = session.find(name)
        if stream is not None:
            stream.attach(call)
            stream.take()  # all of it is in the store
        upto = stream.number if stream is not None else None
        missed = await self.sessions.after(session, name, number)
        if stream is None:
            if missed is None:
                why = RpcError(INVALID_REQUEST, f"The stream of event {last!r} is over")
                await self._refuse(call, None, why, 400)
                return
            stream = EventStream(session.id, name, None)
            stream.numbered = stream.done = True
            stream.attach(call)
        replay = [(n, frame) for n, frame in missed or [] if upto is None or n <= upto]
        await self._listen(call, session, stream, replay)

    async def _listen(
        self,
        call: AsgiCall,
        session: HttpSession,
        stream: EventStream,
        replay: list[tuple[int, bytes]] | None,
    ) -> None:
        revision = session.revision or HANDSHAKE[-1]
        stream.attach(call)
        if stream is session.standalone and revision.resumable:
            stream.number_events()
        await write_stream(
            call,
            stream,
            heartbeat=self.settings.heartbeat,
            prime=revision.polling and replay is None,
            retry=self.settings.retry,
            replay=replay,
        )

    async def _delete(self, call: AsgiCall, principal: Principal) -> None:
        session_id = call.headers.get(b"mcp-session-id")
        if session_id is None:
            await call.send_text(405, "DELETE ends a session; name it", [(b"allow", b"POST")])
            return
        name = session_id.decode("latin-1")
        session = self.sessions.get(name, principal)
        if session is not None:
            await self.sessions.end(session)
        elif not await self._drop(call, name, principal):
            await self._refuse(call, None, _no_session(), 404)
            return
        await call.answer(200)

    async def _session(
        self, call: AsgiCall, session_id: bytes, principal: Principal
    ) -> HttpSession | None:
        """The session that a request names, if there is one for this client."""
        name = session_id.decode("latin-1")
        found = self.sessions.get(name, principal)
        if found is None and self.sessions.restorer is not None and not self.ending:
            found = await self.sessions.restore_session(name, call.context, principal)
        return found

    async def _drop(self, call: AsgiCall, session_id: str, principal: Principal) -> bool:
        restorer = self.sessions.restorer
        return restorer is not None and await restorer.drop(session_id, call.path, principal)

    # Refusing

    async def _refuse(
        self, call: AsgiCall, message: Message | Batch | None, why: RpcError, status: int
    ) -> None:
        log.info("refused a request with %d: %s", status, why.message)
        if message is not None and not isinstance(message, Batch):
            self._offended("refused", call, encode(message), why.message)
        if isinstance(message, Request):
            answer = failure_of(message, why)
        else:
            answer = failure(None, why.code, why.message, why.data, absent_id=True)
        await call.answer(status, encode(answer))

    def _offended(
        self, kind: Literal["no message", "refused"], call: AsgiCall, frame: bytes, why: str
    ) -> None:
        if self._on_offence is not None:
            self._on_offence(
                MalformedFrame(
                    frame=frame,
                    size=len(frame),
                    kind=kind,
                    why=why,
                    direction=Direction.CLIENT_TO_SERVER,
                    transport=call.context,
                )
            )

    def _in_parts(self, call: AsgiCall, message: Request) -> bool:
        """DEC-06: whether a tool's answer is a stream of parts, because somebody wants it so."""
        return message.method == "tools/call" and (
            b"dialect=fragments" in call.headers.get(b"accept", b"")
            or (self.settings.sse_dialect == "fragments" and _wants_events(call))
        )

    def _status(self, call: AsgiCall) -> Callable[[int], int]:
        return mapped_status if self._maps(call) else status_of

    def _legacy_status(self, call: AsgiCall) -> Callable[[int], int]:
        return mapped_status if self._maps(call) else _always_ok

    def _session_status(self, call: HttpCall, frame: bytes) -> int:
        if not self._maps(call):
            return 200
        answer = self.decoder.decode(frame)
        return mapped_status(answer.code) if hasattr(answer, "code") else 200

    def _maps(self, call: HttpCall) -> bool:
        return (
            self.settings.error_status == "mapped"
            or b"status=mapped" in call.headers.get(b"prefer", b"").lower()
        )

    @staticmethod
    def _claims_stateless(headers: dict[bytes, bytes]) -> bool:
        revision = find_revision(headers.get(b"mcp-protocol-version", b"").decode("latin-1"))
        return revision is not None and revision.stateless


async def send_rejection(call: AsgiCall, refusal: RequestRefusal) -> None:
    """Turn somebody away."""
    log.info("turned a request away with %d: %s", refusal.status, refusal.message)
    answer = failure(None, INVALID_REQUEST, refusal.message, absent_id=True)
    await call.answer(refusal.status, encode(answer), headers=refusal.headers)


def is_self_describing(head: ParamsHead) -> bool:
    """Whether a message carries its own metadata, so that it is one of the stateless era."""
    meta = head.meta
    return not isinstance(meta, UnsetType) and (
        meta.protocol_version is not UNSET or meta.client_capabilities is not UNSET
    )


def _accepts(accept: bytes, *kinds: bytes) -> bool:
    """Return True if the `Accept` header allows one of these types."""
    accept = accept.lower()
    return b"*/*" in accept or any(
        kind in accept or kind.partition(b"/")[0] + b"/*" in accept for kind in kinds
    )


def _wants_events(call: HttpCall) -> bool:
    accept = call.headers.get(b"accept")
    return accept is None or _accepts(accept, b"text/event-stream")


def repeated_header(call: AsgiCall) -> str | None:
    """Return the first routing header that occurs more than once."""
    names = [name for name, _ in call.scope["headers"]]
    for name in _ROUTING:
        if names.count(name) > 1:
            return name.decode()
    return None


async def _say_later(call: AsgiCall, why: str) -> None:
    await call.send_text(503, why, [(b"retry-after", b"5")])


async def _no_beat() -> None:
    """An answer that begins a session has its headers when it is there, so nothing can be said."""


def _no_session() -> RpcError:
    return RpcError(INVALID_REQUEST, "No such session: begin again with initialize")


def _bad_version(version: bytes) -> RpcError:
    spoken = ", ".join(Revision)
    shown = version[:50].decode("latin-1")
    return RpcError(INVALID_REQUEST, f"MCP-Protocol-Version {shown!r} is not one of {spoken}")


def _always_ok(code: int) -> int:
    return 200  # the handshake era: a refusal is an answer like any other


def _introduction(revision: Revision) -> Request:
    params = b'{"protocolVersion":"%b","capabilities":{},"clientInfo":{"name":"","version":""}}'
    return Request("_", "initialize", Raw(params % revision.value.encode()))
