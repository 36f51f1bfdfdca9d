"""Errors that end a whole request. Each is logged once, before the caller receives it."""

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
    """Log an error and return the error for the caller.

    An `RpcError` or `ProtocolError` is returned with its message. Any other exception becomes
    "Internal error" with the correlation id, because its text may contain internal details.
    """
    # The error may have been logged by an inner layer of the same request.
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
        answer = RpcError(INTERNAL_ERROR, "Internal error", {"correlation_id": name})
    # The start time identifies the request, because a handler may raise the same object again.
    setattr(answer, _LOGGED, exchange.started)
    return answer


def sensitive_parts(exchange: Exchange) -> tuple[object, ...]:
    """Return the parts of a request whose values are redacted in log messages."""
    return exchange.message.params, exchange.transport.headers


async def log_errors(exchange: Exchange, proceed: Proceed) -> Answer:
    """Log the errors with which other interceptors reject a request or fail.

    This is the outermost interceptor of a server that has interceptors.
    """
    try:
        return await proceed(exchange)
    except Exception as exc:
        raise error_for_caller(exc, exchange) from None
