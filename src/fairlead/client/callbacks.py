"""Everything a caller may hand to the `connect_*` functions besides the configuration."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypedDict

from ..interceptor import Interceptor
from .input.answers import OnElicit, OnRoots, OnSample
from .mcp_transport.mcp_transport import OnRequest
from .mcp_transport.notification_queue import NotificationListener

__all__ = ["Callbacks", "OnLog"]

OnLog = Callable[[str, Any, str | None], Awaitable[None] | None]  # level, data, logger


class Callbacks(TypedDict, total=False):
    """Keyword arguments of the `connect_*` functions; each may be left out or None."""

    on_log: OnLog | None  # hears log messages
    on_notification: NotificationListener | None  # hears every notification
    on_request: OnRequest | None  # answers what has no callback of its own
    on_elicit: OnElicit | None  # asks the user
    on_sample: OnSample | None  # asks a model
    on_roots: OnRoots | None  # names the folders a server may work in
    elicit_url: bool  # `on_elicit` can show pages, not only forms
    sample_tools: bool  # `on_sample` understands tools
    interceptors: Sequence[Interceptor]  # around all that passes, the first one outermost
