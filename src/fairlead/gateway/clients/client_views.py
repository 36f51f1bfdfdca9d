"""The views of a gateway's clients."""

from collections.abc import Iterator, Mapping

from ...protocol.caller import Caller
from ...protocol.identity.principal import Principal
from ..catalog.views import View

__all__ = ["ClientViews"]


class ClientViews:
    """Views by principal. Principals without a view of their own share the default view."""

    def __init__(self, views: Mapping[str, View], default: View) -> None:
        self._views = dict(views)
        self._default = default

    def __iter__(self) -> Iterator[View]:
        yield self._default
        yield from self._views.values()

    def view_for(self, principal: Principal) -> View:
        """Return the view of a principal."""
        view = self._views.get(principal) if isinstance(principal, str) else None
        return self._default if view is None else view

    def view_of(self, caller: Caller) -> View:
        """Return the view of the sender of a request."""
        return self.view_for(caller.principal)

    def replace(self, views: Mapping[str, View], default: View) -> None:
        """Replace all views."""
        self._views, self._default = dict(views), default
