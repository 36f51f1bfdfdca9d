"""Errors that answer a whole request: each is in the log, once, before anybody hears it."""

import logging

from ...errors import ProtocolError, RpcError
from ...interceptor import Answer, Exchange, Proceed
from ...observe.log_filter import ABOUT
from ...wire.error_codes import INTERNAL_ERROR
from ..context.context import Context
from ..context.correlation_id import correlation_id

__all__ = ["error_for_caller", "log_errors", "sensitive_parts"]

_LOGGED = "_fairlead_logged"

log = logging.getLogger("fairlead.server")


def error_for_caller(
    exc: Exception, exchange: Exchange, context: Context | None = None
) -> RpcError:
    """What the caller hears of an error: a refusal as it is, of anything else only that it was."""
    if isinstance(exc, RpcError) and getattr(exc, _LOGGED, None) == exchange.started:
        return exc
    name = correlation_id(exchange) if context is None else context.correlation_id
    what = exchange.method if exchange.target is None else f"{exchange.method} {exchange.target}"
    extra = {"correlation_id": name, ABOUT: sensitive_parts(exchange)}
    if isinstance(exc, RpcError | ProtocolError):
        log.warning("%s [%s]: %s", what, name, exc, extra=extra)
        answer = exc if isinstance(exc, RpcError) else RpcError(exc.code, str(exc))
    else:
        log.error("%s [%s] failed", what, name, exc_info=exc, extra=extra)
        answer = RpcError(INTERNAL_ERROR, "Internal error")
    setattr(answer, _LOGGED, exchange.started)  # by this request; it may be raised again
    return answer


def sensitive_parts(exchange: Exchange) -> tuple[object, ...]:
    """What may have secrets that an error repeats."""
    return exchange.message.params, exchange.transport.headers


async def log_errors(exchange: Exchange, proceed: Proceed) -> Answer:
    """The outermost interceptor, where there are others that may refuse or fail."""
    try:
        return await proceed(exchange)
    except Exception as exc:
        raise error_for_caller(exc, exchange) from None
