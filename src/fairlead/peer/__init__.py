"""Peers: channels with a conversation, tasks, futures, deadlines and cancellation."""

from ..observe.log_filter import redact_logs
from .deadlines import Deadlines
from .inbound_in_flight import DelegatedRequest
from .inbound_requests import InlineHandler
from .peer import Peer
from .pending_requests import OnProgress
from .responses import error_response
from .taskless_requests import Delegate

__all__ = [
    "Deadlines",
    "Delegate",
    "DelegatedRequest",
    "InlineHandler",
    "OnProgress",
    "Peer",
    "error_response",
]

redact_logs()
