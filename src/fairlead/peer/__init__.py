"""Peers: channels with a conversation, tasks, futures, deadlines and cancellation."""

from ..observe.log_filter import redact_logs
from .connection_state import DelegatedRequest
from .inbound_requests import Delegate, InlineHandler, error_response
from .outbound_requests import Deadlines, OnProgress
from .peer import Peer

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
