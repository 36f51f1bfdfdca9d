"""Who may come in to a gateway that a file describes; it follows the file while it runs."""

import hmac
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ...protocol.identity.principal import UNNAMED
from ..catalog.views import View
from ..gateway_file import GatewayFile

if TYPE_CHECKING:
    from ..gateway import Gateway

__all__ = ["ClientAccess"]


class ClientAccess:
    """Whose token something is, and what each gets to see, as the file says now."""

    def __init__(self, file: GatewayFile, *, names_only: bool = False) -> None:
        """`names_only`: the file's token for everybody counts for nothing; there is another."""
        self._names_only = names_only
        self._tokens = self._of(file)
        self._removed: dict[str, View] = {}  # clients that the file had once
        self._seen = self._views(file)
        self.guards = bool(self._tokens)  # whether a token is needed at all

    def verify(self, token: str) -> str | None:
        """Whose token it is; None: nobody's."""
        given, whose = token.encode(), None
        for expected, name in self._tokens:  # all of them, so that time tells nothing
            if hmac.compare_digest(given, expected):
                whose = name
        return whose

    async def follow(self, file: GatewayFile, gateway: "Gateway") -> bool:
        """The file may say something else now; returns whether it does.

        A token that is not there any more is refused from here on, and connections that were
        opened with it end. Whose view changes is told that lists have changed.

        Raises:
            ConfigError: this cannot be changed while it runs; nothing has been.
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
