"""Exchanges for requests that a program or tool sends without a connection."""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from ..errors import RpcError
from ..protocol.caller import Caller, ParamsHead, Principal, read_params_head
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.envelope import Direction, SessionContext, TransportContext
from ..protocol.revisions import NEWEST_HANDSHAKE
from ..wire import Notification, Request
from ..wire.error_codes import METHOD_NOT_FOUND
from .exchange import Exchange, ReplyPathBase

__all__ = ["NullReplyPath", "direct_exchange"]


class NullReplyPath(ReplyPathBase):
    """Reply path for a request without a connection; only the result can be returned on it."""

    def __init__(self, principal: Principal, conversation: Conversation | None = None) -> None:
        self._conversation = conversation or Conversation(
            ConversationRole.SERVER, assume=NEWEST_HANDSHAKE, principal=principal
        )
        self.log_level: str | None = None

    @property
    def session(self) -> SessionContext:
        return self._conversation.session

    async def notify_caller(self, exchange: Exchange, notification: Notification) -> None:
        pass

    async def request_caller(
        self, exchange: Exchange, method: str, params: Any, *, timeout: float | None = None
    ) -> Raw:
        raise RpcError(METHOD_NOT_FOUND, f"{method} cannot be sent: no client is connected")


def direct_exchange(
    message: Request,
    caller: Caller,
    head: ParamsHead | None = None,
    conversation: Conversation | None = None,
    headers: Mapping[str, str] | None = None,
) -> Exchange:
    """Return an exchange for a request without a connection."""
    return Exchange(
        message,
        caller,
        head or read_params_head(message.params),
        Direction.CLIENT_TO_SERVER,
        TransportContext(transport_type="direct", headers=headers),
        NullReplyPath(caller.principal, conversation),
    )
