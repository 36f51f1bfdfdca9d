"""Refusals that come from whoever passes messages on, and not from a server."""

from ..errors import HttpError, RpcError, ServerBusy
from ..wire.error_codes import INTERNAL_ERROR
from .public_reason import public_reason

__all__ = ["own_error", "unreachable_error"]


def own_error(code: int, message: str, **data: object) -> RpcError:
    """Return a refusal that comes from us, and says so."""
    return RpcError(code, message, {"source": "proxy", **data})


def unreachable_error(server: str, error: BaseException) -> RpcError:
    """Build what a client is answered when the server failed: its name and a public reason."""
    facts: dict[str, float] = {"status": error.status} if isinstance(error, HttpError) else {}
    if isinstance(error, ServerBusy):
        facts["retryAfter"] = error.retry_after
    message = f"server {server!r} {public_reason(error)}"
    return own_error(INTERNAL_ERROR, message, server=server, **facts)
