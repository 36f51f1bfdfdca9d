"""Refusals of requests: log entry, report to interceptors, and response."""

import logging
from collections.abc import Callable
from typing import Literal

from msgspec import Raw

from ....errors import LocalProtocolError, RemoteProtocolError, RpcError
from ....interceptor import MalformedFrame, OnMalformed
from ....protocol.envelope import Direction
from ....wire import Batch, Failure, Message, Request, encode, failure
from ....wire.error_codes import INVALID_REQUEST
from .asgi import AsgiCall
from .request_guard import RequestRefusal

__all__ = [
    "MessageRefusals",
    "failure_of",
    "rejection_frame",
    "report_refusal",
    "send_rejection",
    "unknown_session",
]

log = logging.getLogger("fairlead.transport")


class MessageRefusals:
    """Refusals of messages at one endpoint."""

    def __init__(self, on_malformed: OnMalformed | None) -> None:
        self._on_malformed = on_malformed

    async def refuse(
        self, call: AsgiCall, message: Message | Batch | None, why: RpcError, status: int
    ) -> None:
        """Respond to a request with an error and a status."""
        log.info("refused a request with %d: %s", status, why.message)
        if message is not None and not isinstance(message, Batch):
            self.report("refused", call, encode(message), why.message)
        if isinstance(message, Request):
            answer = failure_of(message, why)
        else:
            answer = failure(None, why.code, why.message, why.data, absent_id=True)
        await call.answer(status, encode(answer))

    async def refuse_access(
        self, call: AsgiCall, message: Message | Batch, refusal: RequestRefusal
    ) -> None:
        """Respond with the challenge to a message whose token lacks required scopes."""
        report_refusal(refusal, call.on_refused)
        if not isinstance(message, Batch):
            self.report("refused", call, encode(message), refusal.message)
        known = message.id if isinstance(message, Request) else None
        answer = failure(known, INVALID_REQUEST, refusal.message, absent_id=known is None)
        await call.answer(refusal.status, encode(answer), headers=refusal.headers)

    def report(
        self, kind: Literal["not a message", "refused"], call: AsgiCall, frame: bytes, why: str
    ) -> None:
        """Report an invalid or refused body to the `on_malformed` hook."""
        if self._on_malformed is None:
            return
        self._on_malformed(
            MalformedFrame(
                frame=frame,
                size=len(frame),
                kind=kind,
                why=why,
                direction=Direction.CLIENT_TO_SERVER,
                transport=call.context,
            )
        )


async def send_rejection(call: AsgiCall, refusal: RequestRefusal) -> None:
    """Respond to a request that is not admitted."""
    body = rejection_frame(refusal, call.on_refused)
    await call.answer(refusal.status, body, headers=refusal.headers)


def rejection_frame(
    refusal: RequestRefusal, on_refused: Callable[[RequestRefusal], None] | None
) -> bytes:
    """Return the body of the response to a request that is not admitted, and report the refusal."""
    report_refusal(refusal, on_refused)
    return encode(failure(None, INVALID_REQUEST, refusal.message, absent_id=True))


def report_refusal(
    refusal: RequestRefusal, on_refused: Callable[[RequestRefusal], None] | None
) -> None:
    """Log a refusal, and call the hook for refusals."""
    log.info("refused a request with %d: %s", refusal.status, refusal.message)
    if on_refused is not None:
        on_refused(refusal)


def unknown_session() -> RpcError:
    """Return the error for an `Mcp-Session-Id` that is unknown or belongs to another client."""
    return RpcError(INVALID_REQUEST, "Unknown session: send initialize to open a new one")


def failure_of(
    message: Request, error: RpcError | LocalProtocolError | RemoteProtocolError
) -> Failure:
    """Return the error response for a request."""
    if isinstance(error, RpcError):
        # Kept as received, so that unknown members of a relayed error survive.
        if error.raw is not None:
            return Failure(message.id, error.code, error.message, Raw(error.raw))
        return failure(message.id, error.code, error.message, error.data)
    return failure(message.id, error.code or INVALID_REQUEST, str(error))
