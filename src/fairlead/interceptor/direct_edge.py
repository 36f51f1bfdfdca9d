"""The way back of a message that came outside of any connection."""

from typing import Any

from msgspec import Raw

from ..errors import RpcError
from ..protocol.conversation import Conversation, Role
from ..protocol.envelope import SessionContext
from ..protocol.principal import Principal
from ..protocol.revisions import NEWEST_HANDSHAKE
from ..wire import Notification
from ..wire.codes import METHOD_NOT_FOUND
from .exchange import Exchange

__all__ = ["DirectEdge"]


class DirectEdge:
    """Nobody is there to hear anything but the answer."""

    def __init__(self, principal: Principal, conversation: Conversation | None = None) -> None:
        self._conversation = conversation or Conversation(
            Role.SERVER, assume=NEWEST_HANDSHAKE, principal=principal
        )
        self.log_level: str | None = None

    @property
    def session(self) -> SessionContext:
        return self._conversation.session

    async def tell(self, exchange: Exchange, notification: Notification) -> None:
        pass

    def hang_up(self, exchange: Exchange) -> None:
        pass

    async def ask(self, exchange: Exchange, method: str, params: Any) -> Raw:
        raise RpcError(METHOD_NOT_FOUND, f"{method} cannot be asked: nobody is connected")
