"""Action that refuses messages."""

from typing import ClassVar

from ...errors import RpcError
from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...protocol.own_errors import own_error
from ...redaction.redact_text import redact
from ...wire import Request
from ...wire.error_codes import INVALID_REQUEST

__all__ = ["Block", "blocked_error"]


def blocked_error(exchange: Exchange, reason: str, code: int = INVALID_REQUEST) -> RpcError:
    """Build the error that refuses a message, and note the refusal in the exchange.

    A refused notification is dropped without a response. The reason is redacted, because it may
    contain a URI with a password.
    """
    reason = redact(reason)
    exchange.note(f"blocked: {reason}")
    return own_error(code, reason, method=exchange.method)


class Block(InterceptorBase):
    """Action that refuses requests and drops notifications."""

    pure: ClassVar = True
    waits: ClassVar = False

    def __init__(self, reason: str = "Not allowed here", code: int = INVALID_REQUEST) -> None:
        self._reason = reason
        self._code = code

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if not isinstance(exchange.message, Request):
            exchange.drop(f"dropped: {self._reason}")
            return None
        raise blocked_error(exchange, self._reason, self._code)
