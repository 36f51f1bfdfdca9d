"""Which session a message belongs to."""

import hashlib

from ..interceptor import Exchange

__all__ = ["session_label", "session_of"]


def session_of(exchange: Exchange) -> str | None:
    """The id of the session, where there is one. Whoever knows it can join: it is a secret."""
    return exchange.edge.session.session_id


def session_label(exchange: Exchange) -> str | None:
    """A word for it that may be written down, always the same for one session."""
    found = session_of(exchange)
    return None if found is None else hashlib.sha256(found.encode()).hexdigest()[:12]
