"""The callbacks that the `connect_*` functions accept."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypedDict

from ..interceptor import Interceptor
from ..keyword_arguments import require_known
from .input.answers import OnElicit, OnRoots, OnSample
from .mcp_transport.mcp_transport import OnRequest
from .mcp_transport.notification_queue import NotificationListener

__all__ = ["Callbacks", "OnLog", "check_callbacks", "client_keywords"]

OnLog = Callable[[str, Any, str | None], Awaitable[None] | None]  # level, data, logger


class Callbacks(TypedDict, total=False):
    """Keyword arguments of the `connect_*` functions; each may be omitted or None."""

    # Called with log messages, from level "info" unless `set_log_level` requests another level.
    on_log: OnLog | None
    on_notification: NotificationListener | None  # called with every notification
    on_request: OnRequest | None  # answers requests for which no other callback is set
    on_elicit: OnElicit | None  # requests input from the user
    on_sample: OnSample | None  # samples a model
    on_roots: OnRoots | None  # returns the folders in which a server may work
    elicit_url: bool  # True if `on_elicit` can show pages and not only forms
    sample_tools: bool  # `on_sample` supports tools
    # Called for all messages; the first interceptor is outermost.
    interceptors: Sequence[Interceptor]


def check_callbacks(given: Callbacks, *others: str) -> None:
    """Check the keyword arguments of a function that accepts callbacks and the names in `others`.

    Raises:
        TypeError: A name is unknown (the message contains the closest known name), or a callback is
            not a function.
    """
    require_known(given, (*Callbacks.__annotations__, *others), client_keywords)
    for name, value in given.items():
        if name.startswith("on_") and value is not None and not callable(value):
            raise TypeError(f"{name} must be a function, not {value!r}")


def client_keywords() -> Mapping[str, str]:
    """Return remedies for keyword arguments of other libraries."""
    from .client_migration_hints import CLIENT_KEYWORDS

    return CLIENT_KEYWORDS
