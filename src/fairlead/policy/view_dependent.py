"""Interceptors that keep what depends on the views of clients."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

__all__ = ["ViewDependent", "notify_of_views"]


@runtime_checkable
class ViewDependent(Protocol):
    """An interceptor that must forget something when the views of a gateway change."""

    def views_changed(self) -> None:
        """Drop everything that was decided under the views of before."""


def notify_of_views(interceptors: Iterable[object]) -> None:
    """Call `views_changed` on those interceptors that have it."""
    for one in interceptors:
        if isinstance(one, ViewDependent):
            one.views_changed()
