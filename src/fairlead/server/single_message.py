"""Handling of a single JSON-RPC message outside of any connection."""

import logging

from ..errors import RemoteProtocolError
from ..interceptor import Handler
from ..interceptor.direct_edge import direct_exchange
from ..protocol.caller import ANONYMOUS
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.conversation.conversation_events import RequestReceived, RequestRejected
from ..protocol.revisions import NEWEST_HANDSHAKE
from ..wire import Batch, Failure, decode, encode, encode_success, failure
from ..wire.error_codes import INVALID_REQUEST
from .context.correlation_id import HEADER, new_correlation_id
from .execution.handler_errors import error_for_caller

__all__ = ["answer_single_message"]

log = logging.getLogger("fairlead.server")


async def answer_single_message(
    handler: Handler, frame: bytes, correlation_id: str | None
) -> bytes | None:
    """Return the response to a request; None for a notification or a response."""
    try:
        message = decode(frame)
        if isinstance(message, Batch):
            raise RemoteProtocolError(
                "Batches are not supported: send one message at a time", code=INVALID_REQUEST
            )
    except RemoteProtocolError as exc:
        return _refuse(failure(exc.request_id, exc.code, str(exc)), correlation_id)
    # Without a handshake, a revision must be assumed.
    conversation = Conversation(
        ConversationRole.SERVER, assume=NEWEST_HANDSHAKE, principal=ANONYMOUS
    )
    event = conversation.receive(message)
    if isinstance(event, RequestRejected):
        return _refuse(event.answer, correlation_id)
    if not isinstance(event, RequestReceived):
        return None
    headers = None if correlation_id is None else {HEADER: correlation_id}
    exchange = direct_exchange(event.message, event.caller, event.head, conversation, headers)
    try:
        answer = await handler(exchange)
    # The handler contains interceptors, which are user code and may raise anything.
    except Exception as exc:
        error = error_for_caller(exc, exchange)
        return encode(failure(exchange.request_id, error.code, error.message, error.data))
    return encode_success(exchange.request_id, answer or b"{}")


def _refuse(answer: Failure, correlation_id: str | None) -> bytes:
    """Log and encode the rejection of a message that is not a valid request."""
    name = correlation_id or new_correlation_id()
    log.warning("[%s]: %s", name, answer.message, extra={"correlation_id": name})
    return encode(answer)
