"""Connections that are driven: who waits for what, for how long, and how it ends."""

from ..observe.logs import clean_logs
from .answering import Inline
from .deadlines import Deadlines
from .outcome import OnProgress
from .peer import Peer
from .replies import refusal_of
from .taking import Take
from .work import Taken

__all__ = ["Deadlines", "Inline", "OnProgress", "Peer", "Take", "Taken", "refusal_of"]

clean_logs()
