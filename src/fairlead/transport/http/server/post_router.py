"""Routing of POSTs by protocol era.

The rules apply in this order: a batch belongs to a handshake-era revision; a message with its own
metadata is stateless; `initialize` opens a session; a message with a session id belongs to that
session; all others are answered without a session, if the settings allow it.
"""

from msgspec import UNSET, UnsetType

from ....errors import RemoteProtocolError, RpcError
from ....protocol.caller import ParamsHead, read_params_head
from ....protocol.identity.principal import Principal
from ....protocol.revisions import Revision, find_revision
from ....wire import Batch, Decoder, Message, Notification, Request, encode, failure
from ....wire.error_codes import HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST
from .asgi import CLOSE, AsgiCall, BodyTooLarge
from .http_settings import HttpSettings
from .refusals import MessageRefusals, unknown_session
from .request_headers import accepts, claims_stateless, repeated_header
from .sessionless_posts import SessionlessPosts
from .sessions.session_manager import SessionManager
from .sessions.session_posts import ASSUMED_REVISION, SessionPosts

__all__ = ["PostRouter", "is_self_describing"]


class PostRouter:
    """Router that passes each posted message to the handler of its era."""

    def __init__(
        self,
        settings: HttpSettings,
        decoder: Decoder,
        sessions: SessionManager,
        refusals: MessageRefusals,
        session_posts: SessionPosts,
        sessionless_posts: SessionlessPosts,
    ) -> None:
        self._settings = settings
        self._decoder = decoder
        self._sessions = sessions
        self._refusals = refusals
        self._session_posts = session_posts
        self._sessionless_posts = sessionless_posts

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
            body = await call.body(self._settings.max_body)
        except BodyTooLarge:
            limit = f"a message has at most {self._settings.max_body} bytes"
            await call.send_text(413, limit, CLOSE)
            return
        try:
            message = self._decoder.decode(body)
        except RemoteProtocolError as exc:
            await self._refuse_malformed(call, body, exc)
            return
        named = b"mcp-session-id" in headers
        handshake_era = self._in_session if named else self._without_session
        # Checked after decoding, because the error carries the id of the message.
        if len(headers) != len(call.scope["headers"]) and (twice := repeated_header(call)):
            why = RpcError(HEADER_MISMATCH, f"The header {twice} must occur once")
            await self._refusals.refuse(call, message, why, 400)
        elif isinstance(message, Batch):
            await self._session_posts.batch(call, message, principal)
        # A response belongs to a request of the server, which only sessions can receive.
        elif not isinstance(message, Request | Notification):
            await handshake_era(call, message, principal)
        elif is_self_describing(head := read_params_head(message.params)):
            await self._sessionless_posts.stateless(call, message, head, principal)
        elif message.method == "initialize" and isinstance(message, Request):
            await self._initialize(call, message, principal)
        else:
            await handshake_era(call, message, principal)

    async def _refuse_malformed(
        self, call: AsgiCall, body: bytes, error: RemoteProtocolError
    ) -> None:
        self._refusals.report("no message", call, body, str(error))
        # JSON-RPC uses `null` for an id that cannot be read; stateless revisions omit it.
        absent = error.request_id is None and claims_stateless(call.headers)
        answer = failure(error.request_id, error.code, str(error), absent_id=absent)
        await call.answer(400, encode(answer))

    async def _initialize(self, call: AsgiCall, message: Request, principal: Principal) -> None:
        if self._settings.sessions:
            await self._session_posts.initialize(call, message, principal)
        else:
            await self._sessionless_posts.standalone(call, message, None, principal)

    async def _in_session(self, call: AsgiCall, message: Message, principal: Principal) -> None:
        headers = call.headers
        version = headers.get(b"mcp-protocol-version")
        session = await self._sessions.find(call, headers[b"mcp-session-id"], principal)
        if session is None:
            await self._refusals.refuse(call, message, unknown_session(), 404)
        elif version is not None and find_revision(version.decode("latin-1")) is None:
            await self._refusals.refuse(call, message, _bad_version(version), 400)
        else:
            await self._session_posts.post(call, session, [message])

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
            missing = "_meta lacks io.modelcontextprotocol/protocolVersion"
            why = RpcError(INVALID_PARAMS, missing)
        elif self._settings.require_session:
            why = RpcError(INVALID_REQUEST, "Mcp-Session-Id is missing: send initialize first")
        if why is not None:
            await self._refusals.refuse(call, message, why, 400)
            return
        assumed = revision or ASSUMED_REVISION
        await self._sessionless_posts.standalone(call, message, assumed, principal)


def is_self_describing(head: ParamsHead) -> bool:
    """Return True if a message carries its own metadata, as in the stateless era."""
    meta = head.meta
    return not isinstance(meta, UnsetType) and (
        meta.protocol_version is not UNSET or meta.client_capabilities is not UNSET
    )


def _bad_version(version: bytes) -> RpcError:
    spoken = ", ".join(Revision)
    shown = version[:50].decode("latin-1")
    return RpcError(INVALID_REQUEST, f"MCP-Protocol-Version {shown!r} is not one of {spoken}")
