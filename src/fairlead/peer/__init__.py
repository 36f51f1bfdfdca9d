"""Connections that are driven: who waits for what, for how long, and how it ends."""

from .deadlines import Deadlines
from .outcome import OnProgress
from .peer import Inline, Peer, Take, Taken

__all__ = ["Deadlines", "Inline", "OnProgress", "Peer", "Take", "Taken"]
