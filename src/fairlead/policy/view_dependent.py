"""Notification of interceptors about changed views of clients."""

from collections.abc import Iterable

from ..interceptor import Interceptor, hooks_of

__all__ = ["notify_of_views"]


def notify_of_views(interceptors: Iterable[Interceptor]) -> None:
    """Call the hook `views_changed` of interceptors."""
    for one in interceptors:
        hooks_of(one).views_changed()
