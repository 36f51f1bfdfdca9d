"""Session of a message, and a label for logs."""

import hashlib

from ..interceptor import Exchange

__all__ = ["session_label", "session_of"]


def session_of(exchange: Exchange) -> str | None:
    """Return the id of the session, if there is one. Treat it as a secret: it grants access."""
    return exchange.edge.session.session_id


def session_label(exchange: Exchange) -> str | None:
    """Return a label for the session that is safe to log and constant for the session."""
    found = session_of(exchange)
    return None if found is None else hashlib.sha256(found.encode()).hexdigest()[:12]
