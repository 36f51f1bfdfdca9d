"""The callbacks that the `connect_*` functions accept."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypedDict

from ..interceptor import Interceptor
from ..suggestions import check_keywords
from .input.answers import OnElicit, OnRoots, OnSample
from .mcp_transport.mcp_transport import OnRequest
from .mcp_transport.notification_queue import NotificationListener

__all__ = ["Callbacks", "OnLog", "check_callbacks"]

OnLog = Callable[[str, Any, str | None], Awaitable[None] | None]  # level, data, logger


class Callbacks(TypedDict, total=False):
    """Keyword arguments of the `connect_*` functions; each may be omitted or None."""

    on_log: OnLog | None  # called with log messages
    on_notification: NotificationListener | None  # called with every notification
    on_request: OnRequest | None  # answers requests without a callback of their own
    on_elicit: OnElicit | None  # requests input from the user
    on_sample: OnSample | None  # samples a model
    on_roots: OnRoots | None  # returns the folders that a server may work in
    elicit_url: bool  # `on_elicit` can show pages, not only forms
    sample_tools: bool  # `on_sample` supports tools
    interceptors: Sequence[Interceptor]  # called for all messages, the first one outermost


def check_callbacks(given: Callbacks, *others: str) -> None:
    """Check the keyword arguments of a function that takes callbacks and these `others`.

    Raises:
        TypeError: A name is unknown; the message contains the closest known one.
    """
    check_keywords(given, (*Callbacks.__annotations__, *others))
