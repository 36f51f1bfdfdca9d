"""POSTs outside a session: stateless requests, and single messages of the handshake era."""

from collections.abc import Callable

from msgspec import UnsetType

from ....errors import RpcError
from ....protocol.caller import Caller, ParamsHead, stateless_caller
from ....protocol.conversation.conversation import Conversation, ConversationRole
from ....protocol.conversation.conversation_events import RequestReceived, RequestRejected
from ....protocol.envelope import TransportContext
from ....protocol.headers import ParamHeader, check_mirrored, check_params
from ....protocol.identity.principal import Principal
from ....protocol.revisions import Revision
from ....wire import Message, Notification, Request, encode
from ....wire.error_codes import INVALID_REQUEST, UNSUPPORTED_VERSION
from .asgi import AsgiCall, HttpCall
from .error_status import ErrorStatus
from .http_settings import HttpSettings
from .refusals import MessageRefusals
from .request_headers import wants_events
from .stateless_post import StatelessPosts

__all__ = ["SessionlessPosts"]


class SessionlessPosts:
    """Checks and dispatch of POSTs outside a session."""

    def __init__(
        self,
        settings: HttpSettings,
        posts: StatelessPosts,
        refusals: MessageRefusals,
        status: ErrorStatus,
        *,
        tool_param_headers: Callable[[str, Principal], tuple[ParamHeader, ...]] | None,
        on_notification: Callable[[Notification, Caller, TransportContext], None] | None,
    ) -> None:
        """`tool_param_headers` returns the arguments of a tool that are mirrored in headers."""
        self._settings = settings
        self._posts = posts
        self._refusals = refusals
        self._status = status
        self._tool_param_headers = tool_param_headers
        self._on_notification = on_notification

    async def stateless(
        self,
        call: AsgiCall,
        message: Request | Notification,
        head: ParamsHead,
        principal: Principal,
    ) -> None:
        """Respond to a message that carries its own metadata."""
        try:
            caller = self.check(call, message, head, principal)
        except RpcError as exc:
            await self._refusals.refuse(call, message, exc, self._status.stateless(call)(exc.code))
            return
        if isinstance(message, Notification):
            if self._on_notification is not None:
                self._on_notification(message, caller, call.context)
            await call.answer(202)
            return
        parts, status = self._in_parts(call, message), self._status.stateless(call)
        work = self._posts.begin(call, message, caller, head, status, fragments=parts)
        if work is not None:
            await work

    def check(
        self,
        call: HttpCall,
        message: Request | Notification,
        head: ParamsHead,
        principal: Principal,
    ) -> Caller:
        """Return the caller of a message that carries its own metadata.

        Raises:
            RpcError: The metadata is invalid, or a header contradicts it.
        """
        assert not isinstance(head.meta, UnsetType)
        try:
            caller = stateless_caller(head.meta, principal)
        except RpcError as exc:
            # A contradicting header takes precedence over an unsupported version.
            if exc.code == UNSUPPORTED_VERSION:
                check_mirrored(message, head, call.headers)
            raise
        check_mirrored(message, head, call.headers)
        if message.method == "tools/call" and self._tool_param_headers is not None:
            name = "" if isinstance(head.name, UnsetType) else head.name
            marks = self._tool_param_headers(name, principal)
            if marks:
                check_params(marks, head.arguments, call.headers)
        return caller

    async def standalone(
        self, call: AsgiCall, message: Message, revision: Revision | None, principal: Principal
    ) -> None:
        """Respond to a handshake-era message without a session (DEC-18)."""
        if isinstance(message, Notification):
            await call.answer(202)
            return
        if not isinstance(message, Request):
            why = RpcError(INVALID_REQUEST, "Unexpected response: the client has no session")
            await self._refusals.refuse(call, message, why, 400)
            return
        # A conversation in the active state, so that the rules of the revision apply as in a
        # session.
        conversation = Conversation(ConversationRole.SERVER, assume=revision, principal=principal)
        event = conversation.receive(message)
        if isinstance(event, RequestRejected):
            await call.answer(200, encode(event.answer))
        elif isinstance(event, RequestReceived):
            parts, status = self._in_parts(call, message), self._status.handshake(call)
            work = self._posts.begin(
                call, message, event.caller, event.head, status, fragments=parts
            )
            if work is not None:
                await work

    def _in_parts(self, call: AsgiCall, message: Request) -> bool:
        """Return True if the result of a tool is sent in fragments (DEC-06)."""
        return message.method == "tools/call" and (
            b"dialect=fragments" in call.headers.get(b"accept", b"")
            or (self._settings.sse_dialect == "fragments" and wants_events(call))
        )
