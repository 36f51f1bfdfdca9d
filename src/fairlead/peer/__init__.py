"""Connections that are driven: who waits for what, for how long, and how it ends."""

from ..observe.logs import clean_logs
from .deadlines import Deadlines
from .outcome import OnProgress
from .peer import Inline, Peer, Take, Taken, refusal_of

__all__ = ["Deadlines", "Inline", "OnProgress", "Peer", "Take", "Taken", "refusal_of"]

clean_logs()
