"""Connections that are driven: who waits for what, for how long, and how it ends."""

from ..observe.log_filter import clean_logs
from .deadlines import Deadlines
from .inbound_in_flight import Taken
from .inbound_requests import Inline
from .outbound_pending import OnProgress
from .peer import Peer
from .responses import refusal_of
from .taskless_requests import Take

__all__ = ["Deadlines", "Inline", "OnProgress", "Peer", "Take", "Taken", "refusal_of"]

clean_logs()
