"""Descriptions of server failures, for a gateway's clients and for the server's owner."""

from ..errors import (
    ChannelClosed,
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    NoAnswer,
    RemoteProtocolError,
    RequestTimeout,
    RpcError,
    TransportError,
)
from ..wire.error_codes import PARSE_ERROR

__all__ = ["owner_reason", "public_reason"]


def public_reason(error: BaseException | None) -> str:
    """Return a description of a server failure that a gateway's clients may see.

    The phrase continues "server 'notes' ..." and is built from types and numbers only. `str(error)`
    is for the server's owner and may contain output, command, address and library messages.
    """
    reason = ""
    for _ in range(_MAX_CAUSES):
        if error is None:
            break
        found = _reason(error)
        if found and found != _CLOSED:
            return found
        reason = reason or found  # kept for now, because a cause may give a more specific reason
        error = error.__cause__
    return reason or "could not be reached"


def owner_reason(error: BaseException) -> str:
    """Return the message of a failure without the server's stderr."""
    return (error.summary if isinstance(error, FairleadError) else "") or str(error)


_MAX_CAUSES = 8  # maximum number of chained causes that are followed
_CLOSED = "closed the connection"

# Exceptions are compared by class name, so that `ssl` and `socket` need not be imported.
_REASONS = {
    "ConnectionRefusedError": "refused the connection",
    "ConnectionError": _CLOSED,
    "gaierror": "could not be reached: its host name cannot be resolved",
    "SSLError": "could not be reached: the TLS handshake failed",
    "TimeoutError": "did not answer in time",
}


def _reason(error: BaseException) -> str:
    """Return the reason derived from the error alone; empty if its cause must be examined."""
    if isinstance(error, TransportError) and error.public:
        return error.public
    match error:
        case RequestTimeout():
            return f"did not answer within {error.seconds:g} s"
        case HttpError() if 300 <= error.status < 400:
            return "redirected the request, and redirects are not followed"
        case HttpError():
            return f"answered with HTTP {error.status}"
        case NoAnswer():
            return "ended its response without a result"
        case RemoteProtocolError() if error.code == PARSE_ERROR:
            return "sent a message that cannot be read"
        case RemoteProtocolError():
            return "sent a message that is not valid"
        case RpcError():
            return f"answered with error {error.code}"
        case ConfigError():
            return "is not configured correctly"
        case ConnectFailed() if error.exit_code is not None:
            return f"{_exited(error.exit_code)} during start-up"
        case ChannelClosed() if error.exit_code is not None:
            return _exited(error.exit_code)
        case ChannelClosed():
            return _CLOSED
        case FairleadError():
            return ""
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((_REASONS[name] for name in names if name in _REASONS), "")


def _exited(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    # Imported here, because most failures do not need it.
    import signal

    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
