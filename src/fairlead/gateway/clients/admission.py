"""Access to a gateway with a file: tokens and views, and their changes while it runs."""

import hmac
from collections.abc import Container, Mapping
from typing import Protocol

from ...errors import ConfigError
from ...protocol.caller import UNNAMED, Principal
from ..catalog.views import View
from ..gateway_file import GatewayFile

__all__ = ["AccessHost", "ClientAccess"]


class AccessHost(Protocol):
    """The part of a gateway that changes of access affect."""

    def show(self, views: Mapping[str, View], view: View) -> None:
        """Replace the views of clients. `view` is for all other clients."""

    async def disconnect_clients(self, principals: Container[Principal]) -> None:
        """Close all connections of principals that may no longer use the gateway."""


class ClientAccess:
    """The client of each token and the view of each client, as in the current file."""

    def __init__(self, file: GatewayFile, *, names_only: bool = False) -> None:
        """`names_only` ignores the `token` of the file, which admits clients without a name."""
        self._names_only = names_only
        self._tokens = self._of(file)
        self._removed: dict[str, View] = {}  # clients that were in an earlier version of the file
        self._seen = self._views(file)
        self.guards = bool(self._tokens)  # False if no token is required

    def verify(self, token: str) -> str | None:
        """Return the client of a token; None if the token is invalid."""
        given, whose = token.encode(), None
        # Compare with every token: the time must not reveal which one matched.
        for expected, name in self._tokens:
            if hmac.compare_digest(given, expected):
                whose = name
        return whose

    async def follow(self, file: GatewayFile, gateway: AccessHost) -> bool:
        """Apply a file that may have changed; return True if it has changed.

        A removed token is refused immediately, and connections that were opened with it are closed.
        Clients whose view changes are notified that their lists have changed.

        Raises:
            ConfigError: The change is not possible while the gateway runs. Nothing has changed.
        """
        tokens = self._of(file)
        if tokens and not self.guards:
            raise ConfigError(
                "the gateway was started without tokens: restart it to require them",
                path=file.path,
            )
        gone = {name for token, name in self._tokens if (token, name) not in tokens}
        known = {name for _, name in tokens}
        former = {*self._removed, *(name for _, name in self._tokens)}
        self._removed = dict.fromkeys(former - known, View.nothing())
        seen = self._views(file)
        changed = tokens != self._tokens or seen != self._seen
        # Tokens and views first, so that a removed client cannot connect again meanwhile.
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
        """Return the view of each client, and the view of all other clients.

        Calls of a removed client may still be waiting. They must not get the view of other clients,
        so the client keeps an empty view.
        """
        return {**file.views, **self._removed}, file.settings.view
