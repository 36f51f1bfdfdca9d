"""Responses to requests of the peer: each request gets one, exactly once."""

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
    """Sends responses, including extra members beside the result."""

    def __init__(self, line: ConnectionState) -> None:
        self._line = line
        self._channel = line.channel
        self._conversation = line.conversation
        # members to add to responses that are not sent yet, by request id
        self.members: dict[RequestId, dict[str, Raw]] = {}

    def add_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Store members to be added to the response to a request."""
        if self._conversation.is_unanswered(request_id):
            self.members[request_id] = members

    def succeed(self, request_id: RequestId, result: bytes | Raw) -> None:
        """Send the result of a request that the conversation has already marked as answered."""
        if self.members and (members := self.members.pop(request_id, None)) is not None:
            self._channel.send(Success(request_id, Raw(bytes(result)), members))
        else:
            self._channel.send_success(request_id, result)

    def fail(self, request_id: RequestId, error: RpcError) -> None:
        """Send an error response, unless the request was answered before."""
        if self._conversation.mark_answered(request_id):
            members = self.members.pop(request_id, None)
            # The original bytes keep members of the error that a relay does not know.
            if error.raw is not None:
                raw = Raw(error.raw)
                answer = Failure(request_id, error.code, error.message, raw, members)
            else:
                answer = failure(request_id, error.code, error.message, error.data)
            self._line.send_quietly(answer)


def error_response(exchange: Exchange, error: Exception) -> RpcError:
    """Return the error response for a failed request, and log details that the response omits."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, LocalProtocolError | RemoteProtocolError):
        return RpcError(error.code, str(error))
    if isinstance(error, ChannelClosed):  # of another connection that the handler used
        log.warning("%s failed: %s", exchange.method, error)
    else:
        about = {ABOUT: exchange.message.params}
        log.error("%s failed", exchange.method, exc_info=error, extra=about)
    return RpcError(INTERNAL_ERROR, "Internal error")
