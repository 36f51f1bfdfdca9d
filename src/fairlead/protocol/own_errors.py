"""Errors that a relay or gateway creates itself, as opposed to errors from a server."""

import re

from ..errors import ConnectFailed, HttpError, LoginRequired, RpcError
from ..wire.error_codes import INTERNAL_ERROR
from .public_reason import public_reason

__all__ = ["own_error", "unreachable_error"]


def own_error(code: int, message: str, **data: object) -> RpcError:
    """Return an error that is marked as coming from the proxy."""
    return RpcError(code, message, {"source": "proxy", **data})


def unreachable_error(server: str, error: BaseException) -> RpcError:
    """Build the error for a failed server, with the server's name and the public reason."""
    facts: dict[str, float] = {"status": error.status} if isinstance(error, HttpError) else {}
    if isinstance(error, ConnectFailed) and error.retry_after is not None:
        facts["retryAfter"] = error.retry_after
    message = f"server {server!r} {public_reason(error)}"
    if isinstance(error, LoginRequired) and (command := _public_command(error)):
        message += f"; the operator of this proxy has to {command}"
    return own_error(INTERNAL_ERROR, message, server=server, **facts)


def _public_command(error: LoginRequired) -> str:
    """Return the remedy without the parts that clients must not see; the log has all of it."""
    without_file = re.sub(r"""(?<= --gateway )("[^"]*"|'[^']*'|[^\s'"`]+)+""", "FILE", error.remedy)
    return re.sub(r"'[^']*://[^']*'|[^\s'`]+://[^\s'`]+", "URL", without_file)
