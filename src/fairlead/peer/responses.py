"""Answers of ours: what a request of the peer gets in the end, once."""

import logging

from msgspec import Raw

from ..errors import ChannelClosed, LocalProtocolError, RemoteProtocolError, RpcError
from ..interceptor import Exchange
from ..observe.log_filter import ABOUT
from ..wire import Failure, RequestId, Success, failure
from ..wire.error_codes import INTERNAL_ERROR
from .connection_state import ConnectionState

__all__ = ["Responses", "error_response"]

log = logging.getLogger("fairlead.peer")


class Responses:
    """Writes answers, with the members that they have besides their result."""

    def __init__(self, line: ConnectionState) -> None:
        self._line = line
        self._channel = line.channel
        self._conversation = line.conversation
        self.members: dict[RequestId, dict[str, Raw]] = {}  # of answers that are yet to come

    def add_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Our answer to a request, when there is one, has these members besides."""
        if self._conversation.is_unanswered(request_id):
            self.members[request_id] = members

    def succeed(self, request_id: RequestId, result: bytes | Raw) -> None:
        """Answer a request of which the conversation knows already that it is settled."""
        if self.members and (members := self.members.pop(request_id, None)) is not None:
            self._channel.send(Success(request_id, Raw(bytes(result)), members))
        else:
            self._channel.send_success(request_id, result)

    def fail(self, request_id: RequestId, error: RpcError) -> None:
        """Refuse a request, unless it had its answer before."""
        if self._conversation.mark_answered(request_id):
            members = self.members.pop(request_id, None)
            if error.raw is not None:
                raw = Raw(error.raw)
                answer = Failure(request_id, error.code, error.message, raw, members)
            else:
                answer = failure(request_id, error.code, error.message, error.data)
            self._line.send_quietly(answer)


def error_response(exchange: Exchange, error: Exception) -> RpcError:
    """What the peer is answered if its request failed so. What it need not know is logged."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, LocalProtocolError | RemoteProtocolError):
        return RpcError(error.code, str(error))
    if isinstance(error, ChannelClosed):  # another connection, one that the handler used
        log.warning("%s failed: %s", exchange.method, error)
    else:
        about = {ABOUT: exchange.message.params}
        log.error("%s failed", exchange.method, exc_info=error, extra=about)
    return RpcError(INTERNAL_ERROR, "Internal error")
