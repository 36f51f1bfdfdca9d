"""Access to a gateway that a file describes: tokens and views, also when the file changes."""

import hmac
from collections.abc import Container, Mapping
from typing import Protocol

from ...errors import ConfigError
from ...protocol.identity.principal import UNNAMED, Principal
from ..catalog.views import View
from ..gateway_file import GatewayFile

__all__ = ["AccessHost", "ClientAccess"]


class AccessHost(Protocol):
    """A gateway, as far as changes of access are concerned."""

    def show(self, views: Mapping[str, View], view: View) -> None:
        """Use these views from now on; `view` for all other clients."""

    async def disconnect_clients(self, principals: Container[Principal]) -> None:
        """End all connections of principals that may no longer use the gateway."""


class ClientAccess:
    """The client of each token, and the view of each client, as the file has them now."""

    def __init__(self, file: GatewayFile, *, names_only: bool = False) -> None:
        """`names_only` ignores the token that the file has for unnamed clients."""
        self._names_only = names_only
        self._tokens = self._of(file)
        self._removed: dict[str, View] = {}  # clients that were in the file before
        self._seen = self._views(file)
        self.guards = bool(self._tokens)  # False if no token is needed

    def verify(self, token: str) -> str | None:
        """Return the client that has a token; None if the token is invalid."""
        given, whose = token.encode(), None
        for expected, name in self._tokens:  # all of them, so that the time is always the same
            if hmac.compare_digest(given, expected):
                whose = name
        return whose

    async def follow(self, file: GatewayFile, gateway: AccessHost) -> bool:
        """Apply a file that may have changed; return True if it has.

        A token that was removed is refused from here on, and connections that were opened with it
        end. Clients whose view changes are notified that lists have changed.

        Raises:
            ConfigError: The change is not possible while the gateway runs; nothing has changed.
        """
        tokens = self._of(file)
        if tokens and not self.guards:
            raise ConfigError(
                "it was started for everybody; start it again to have tokens", path=file.path
            )
        gone = {name for token, name in self._tokens if (token, name) not in tokens}
        known = {name for _, name in tokens}
        former = {*self._removed, *(name for _, name in self._tokens)}
        self._removed = dict.fromkeys(former - known, View.nothing())
        seen = self._views(file)
        changed = tokens != self._tokens or seen != self._seen
        self._tokens = tokens
        if seen != self._seen:
            self._seen = seen
            gateway.show(*seen)
        if gone:
            await gateway.disconnect_clients(gone)
        return changed

    def _of(self, file: GatewayFile) -> list[tuple[bytes, str]]:
        known = [(one.token.encode(), one.name) for one in file.clients]
        if file.token is not None and not self._names_only:
            known.append((file.token.encode(), UNNAMED))
        return known

    def _views(self, file: GatewayFile) -> tuple[dict[str, View], View]:
        """Return the view of each client, and of all others.

        A removed client may have calls waiting. They must not get the view of all others.
        """
        return {**file.views, **self._removed}, file.settings.view
