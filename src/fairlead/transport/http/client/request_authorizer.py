"""Sources of credentials for HTTP requests."""

from collections.abc import Mapping
from typing import Protocol

from ...login_waits import LoginWaits

__all__ = ["AuthorizerBase", "RequestAuthorizer"]


class RequestAuthorizer(Protocol):
    """Source of credentials for HTTP requests. Several requests may use it at the same time.

    Derive a class from `AuthorizerBase`, which has defaults for `logins`, `responded`,
    `accepted`, `covers` and `access_token`.
    """

    @property
    def logins(self) -> LoginWaits:
        """Periods in which requests wait for a user to log in."""
        ...

    def current(self, method: str, url: str) -> Mapping[str, str] | None:
        """Return headers with credentials, or None if `prepare` must be awaited first."""

    async def prepare(self, method: str, url: str) -> Mapping[str, str]:
        """Return headers with credentials, renewed if necessary; empty if there are none.

        Raises:
            AuthorizationError: The credentials cannot be renewed.
        """
        ...

    async def challenged(
        self, status: int, headers: Mapping[str, str], sent: Mapping[str, str]
    ) -> bool:
        """Handle a 401 or 403; return True if the request should be repeated.

        `headers` are those of the response, with names in lower case; `sent` are the headers that
        `current` or `prepare` returned for the request.

        Raises:
            AuthorizationError: No credentials could be obtained.
        """
        ...

    def responded(self, headers: Mapping[str, str]) -> None:
        """Read the headers of a response to a request with a DPoP proof, whatever its status."""

    def accepted(self) -> None:
        """Note that a repeated request was not refused again."""

    def covers(self, url: str) -> bool:
        """Return True if a redirect to a URL of the same origin may receive the credentials."""
        ...

    async def access_token(self) -> str | None:
        """Return a valid token for a server that does not receive it in HTTP headers.

        Raises:
            AuthorizationError: There is no token, or it cannot be renewed.
        """


class AuthorizerBase:
    """Defaults of a `RequestAuthorizer`."""

    def __init__(self) -> None:
        self._logins = LoginWaits()

    @property
    def logins(self) -> LoginWaits:
        return self._logins

    def responded(self, headers: Mapping[str, str]) -> None:
        """Do nothing: these credentials do not depend on responses."""

    def accepted(self) -> None:
        """Do nothing: these credentials do not depend on responses."""

    def covers(self, url: str) -> bool:
        """Return True: the credentials are for all URLs of the server's origin."""
        return True

    async def access_token(self) -> str | None:
        """Return None: these credentials exist only as headers."""
        return None
